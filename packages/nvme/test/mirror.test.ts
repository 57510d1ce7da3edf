import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { startProgram } from "../../cli/test/support/command-line.ts";

/** The stage disks-clients of `npm test` installs the programs and sets it. */
const hasClients = process.env.CINNABAR_DISK_CLIENTS !== undefined;
const program = fileURLToPath(new URL("../../../build/examples/demo/storage/main.js", import.meta.url));

it.skipIf(!hasClients)(
  "a disk on two servers by QEMU's quorum survives the kill of each, and both files are equal again",
  async () => {
    const { status, stdout, stderr } = await startProgram([program, "--mirror"]).ended;
    expect({ status, stderr }, stdout).toEqual({ status: 0, stderr: "" });
    for (const name of ["one", "two"]) {
      const [, missed = "0"] =
        new RegExp(`server ${name} was killed and missed ([\\d,]+) blocks`).exec(stdout) ?? [];
      expect(Number(missed.replaceAll(",", ""))).toBeGreaterThan(0);
    }
    expect(stdout.match(/both files are equal, block by block/g)).toHaveLength(2);
    expect(stdout).toMatch(/^every block was right$/m);
  },
  300_000,
);
