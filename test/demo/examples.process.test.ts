import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";

const run = promisify(execFile);

describe.each(["mem", "shm", "tcp"])("the examples over %s", (scheme) => {
  it.each([
    ["01-hello", "Hello, world\nNo greeting: everyone has a name\n"],
    ["02-bulk", "1000000 squares, the last is 1000000000000\n"],
    ["03-streams", "2500000 bytes, the last line is IN XANADU DID KUBLA KHAN\n"],
    ["04-log-tail", "resumes after line 599\n1000 lines, each once\n"],
    ["05-upload", "0 %\n25 %\n50 %\n75 %\na.bin has 8388608 bytes, as sent\nrefused: TooLong\n"],
    [
      "06-chat",
      "welcome, Ada\nwelcome, Bob\nwelcome, Eve\nAda: Ada says hello\nBob: Bob says hello\nEve: Eve says hello\n" +
        "3 claps, 0 guests left\n",
    ],
    ["07-way-back", "frame 1 by Ada\nframe 2 by Bob\nBob is left\n"],
  ])("%s says what it should and ends", async (name, output) => {
    const program = fileURLToPath(new URL(`../../build/examples/${name}.js`, import.meta.url));
    const url = scheme === "tcp" ? "tcp://127.0.0.1:0" : `${scheme}://examples-${name}-${process.pid}`;
    const { stdout, stderr } = await run(process.execPath, [program, url]);
    expect(stderr).toBe("");
    expect(stdout).toBe(output);
  });
});
