import { afterEach, describe, expect, it } from "vitest";
import { cinnabar } from "./support/command-line.ts";
import { endAll, serve } from "./support/watched-server.ts";

afterEach(endAll);

const patient = ["--timeout", "1m"];

describe("a server that serves neither reflection nor inspection", () => {
  const untold = "does not tell its methods: let its engine serve reflection(engine) of cinnabar-inspect";
  const hidden = "does not let others look into it; let it serve inspection(engine) of cinnabar-inspect";

  it.each([
    ["top", ["--once"], hidden],
    ["why", [], hidden],
    ["tail", [], hidden],
    ["list", [], untold],
    ["describe", ["work.v1"], `${untold}, or give --contract`],
    ["call", ["work.v1/ping", '"a"'], untold],
  ])("is told by cinnabar %s %j in one line, with status 76", async (tool, more, message) => {
    const { url } = await serve({}, []);
    const { status, stdout, stderr } = await cinnabar([tool, url, ...more, ...patient]);
    expect({ status, stdout }).toEqual({ status: 76, stdout: "" });
    expect(stderr).toMatch(new RegExp(`^cinnabar ${tool}: net://[^\\n]+\\n$`));
    expect(stderr).toContain(message);
  });

  it.each([
    ["ping", ["--count", "1"]],
    ["health", []],
  ])("answers cinnabar %s", async (tool, more) => {
    const { url } = await serve({}, []);
    expect(await cinnabar([tool, url, ...more, ...patient])).toMatchObject({ status: 0, stderr: "" });
  });
});
