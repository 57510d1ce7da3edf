import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import { verbsDevices } from "../matrix/verbs.ts";

/**
 * Writes every second page, so that no two are one mapping, and reads them twice: more than the 65,530 mappings that
 * Linux grants a process by default (`vm.max_map_count`).
 */
const scattered = `
  const pages = 70_000, step = 8192;
  const memory = new Uint8Array(pages * step);
  for (let page = 0; page < pages; page++) memory[page * step] = (page & 127) | 1;
  let wrong = 0;
  for (let round = 0; round < 2; round++)
    for (let page = 0; page < pages; page++) if (memory[page * step] !== ((page & 127) | 1)) wrong++;
  console.log(wrong);
`;

// The tests over devices that run in the guest are told by the name.
describe.skipIf(verbsDevices.length === 0)("the guest of verbs on devices", () => {
  it("runs a process that has more scattered pages than its host maps", async () => {
    const { stdout } = await promisify(execFile)(process.execPath, ["--eval", scattered]);
    expect(stdout).toBe("0\n");
  });
});
