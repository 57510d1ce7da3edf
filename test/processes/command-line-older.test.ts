import { afterEach, describe, expect, it, vi } from "vitest";
import { cinnabar } from "./support/command-line.ts";
import { endAll, serve } from "./support/watched-server.ts";

// Servers of older versions: this process is one that knows no built-in services, and the command line is as it is.
vi.mock(import("../../src/wire/builtin.ts"), async (original) => ({
  ...(await original()),
  builtinMethods: {},
  builtinServices: new Set<string>(),
}));

afterEach(endAll);

const patient = ["--timeout", "1m"];

describe("a server of an older version, without built-in services", () => {
  it.each([
    [
      "health",
      [],
      "is of an older version and does not tell its health; cinnabar ping asks whether it answers",
    ],
    ["health", ["--watch"], "is of an older version and does not tell its health"],
    ["top", ["--once"], "does not let others look into it; open it with inspection: true"],
    ["why", [], "does not let others look into it; open it with inspection: true"],
    ["tail", [], "does not let others look into it; open it with inspection: true"],
    ["list", [], "does not tell its methods: open its engine with reflection: true"],
    [
      "describe",
      ["work.v1"],
      "does not tell its methods: open its engine with reflection: true, or give --contract",
    ],
    ["call", ["work.v1/ping", '"a"'], "does not tell its methods: open its engine with reflection: true"],
  ])("is told by cinnabar %s %j in one line, with status 76", async (tool, more, message) => {
    const { url } = await serve({ inspection: false });
    const { status, stdout, stderr } = await cinnabar([tool, url, ...more, ...patient]);
    expect({ status, stdout }).toEqual({ status: 76, stdout: "" });
    expect(stderr).toMatch(new RegExp(`^cinnabar ${tool}: net://[^\\n]+\\n$`));
    expect(stderr).toContain(message);
  });

  it("answers cinnabar ping", async () => {
    const { url } = await serve({ inspection: false });
    expect(await cinnabar(["ping", url, "--count", "1", ...patient])).toMatchObject({
      status: 0,
      stderr: "",
    });
  });
});
