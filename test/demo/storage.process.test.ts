import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { startProgram } from "../../packages/cli/test/support/command-line.ts";
import { isRunning } from "./support/demo-run.ts";

const program = fileURLToPath(new URL("../../build/examples/demo/storage/main.js", import.meta.url));

/** The process that served first. */
function serverOf(stdout: string): number {
  const [, pid] = /^process (\d+) serves /m.exec(stdout) ?? [];
  if (pid === undefined) throw new Error(`no server is named in: ${stdout}`);
  return Number(pid);
}

it("writes and verifies a disk over every transport while its server is killed, and ends with the table", async () => {
  const { status, stdout, stderr } = await startProgram([program, "--mib", "4", "--kills", "1"]).ended;
  expect({ status, stderr }, stdout).toEqual({ status: 0, stderr: "" });
  expect(stdout).toMatch(/^over +client +blocks +bytes +writes +reads +kills +longest write +verified$/m);
  for (const over of ["shm", "tcp", "nvme-tcp"])
    expect(stdout).toMatch(new RegExp(`^${over} +NvmeHost +2,048 +8\\.4 MB .* 1 +\\d+ ms +all$`, "m"));
  // The programs are installed by the command before it starts the demo; a stage of tests of their own has them, too.
  expect(stdout).toMatch(/^nbd +qemu-img, nbdcopy +2,048 +8\.4 MB .* 1 +– +all$|^nbd is left out: /m);
  expect(isRunning(serverOf(stdout))).toBe(false);
});

it.each([
  ["SIGINT", 130],
  ["SIGTERM", 143],
] as const)("ends on %s while it writes, and leaves no process", async (signal, expected) => {
  const running = startProgram([program, "--over", "shm", "--mib", "512", "--kills", "0"]);
  await running.has(/^shm: writing/m);
  running.child.kill(signal);
  const { status, stdout, stderr } = await running.ended;
  expect({ status, stderr }).toEqual({ status: expected, stderr: `demo: ended by ${signal}\n` });
  expect(isRunning(serverOf(stdout))).toBe(false);
});

it("refuses a transport that it does not know, and numbers that do not fit", async () => {
  const { status, stderr } = await startProgram([program, "--over", "iscsi"]).ended;
  expect({ status, stderr }).toEqual({
    status: 1,
    stderr: 'demo: --over takes shm, tcp, nvme-tcp and nbd, not "iscsi"\n',
  });
  const wrong = await startProgram([program, "--mib", "0"]).ended;
  expect(wrong).toMatchObject({ status: 1, stderr: expect.stringContaining("--mib must be an integer") });
});
