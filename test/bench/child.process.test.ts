import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { until } from "../matrix/wait.ts";

const program = fileURLToPath(new URL("../../build/test/bench/programs/parent.js", import.meta.url));

describe("the processes of a benchmark", () => {
  it("answer, fail by name, and are an error that names them when they end", async () => {
    const { parent, output } = start("outcomes");
    await once(parent, "close");
    expect(JSON.parse(output())).toEqual({
      echo: { value: ["hello", null] }, // NaN, as JSON has it
      fail: { error: "the mortal, fail: Error: it is said why" },
      die: { error: "The process of the mortal ended with 7" },
      afterwards: { error: "The process of the mortal ended with 7" },
      missing: { error: expect.stringContaining("the missing, open: Error") },
    });
  });

  it.each([
    ["SIGINT", 130],
    ["SIGTERM", 143],
  ] as const)("end with the program that is ended by %s", async (signal, status) => {
    const { parent, output } = start("wait");
    await until(() => output().endsWith("\n"), "the program says the pid of its child");
    const pid = Number(output());
    parent.kill(signal);
    expect((await once(parent, "close"))[0]).toBe(status);
    await until(() => !isAlive(pid), "the child ends");
  });
});

function start(what: string): { parent: ChildProcess; output: () => string } {
  const parent = spawn(process.execPath, [program, what], {
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, NODE_OPTIONS: "", VITEST: "" },
  });
  let text = "";
  parent.stdout?.on("data", (chunk) => {
    text += chunk;
  });
  return { parent, output: () => text };
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
