import { spawn, spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { underSanitizers } from "./support/fabrics.ts";

const program = fileURLToPath(new URL("../../build/programs/shm-room.js", import.meta.url));
/** A namespace in which this user may mount. */
const inNamespace = ["-Urm", "sh", "-c"];
const mayMount = spawnSync("unshare", [...inNamespace, "mount -t tmpfs tmpfs /dev/shm"]).status === 0;

interface Outcome {
  readonly code?: string;
  readonly message?: string;
  readonly answers?: number;
  readonly freePages?: number;
  readonly late?: string;
}

/** What the program says of a /dev/shm that `prepare` makes. */
async function outcomeWith(prepare: string, clients: number): Promise<Outcome> {
  const command = `${prepare} && exec "${process.execPath}" "${program}" '${JSON.stringify({ clients })}'`;
  const child = spawn("unshare", [...inNamespace, command], { stdio: ["ignore", "pipe", "pipe"] });
  let stdout = "";
  let stderr = "";
  child.stdout.on("data", (chunk) => {
    stdout += chunk;
  });
  child.stderr.on("data", (chunk) => {
    stderr += chunk;
  });
  const ending = await new Promise((resolve) =>
    child.once("close", (status, signal) => resolve(signal ?? status)),
  );
  expect(ending, stderr).toBe(0);
  return JSON.parse(stdout);
}

// A process under a sanitizer ends by its own report instead of a signal, and is too large for the small rooms.
describe.skipIf(!mayMount || underSanitizers)("/dev/shm", () => {
  it("of 64 MiB holds a server and 30 clients, whatever else fills it up then", async () => {
    const outcome = await outcomeWith("mount -t tmpfs -o size=64m tmpfs /dev/shm", 30);
    expect(outcome).toEqual({ freePages: 0, answers: 30 * 300, late: "resource_exhausted" });
  }, 120_000);

  it.each([
    [
      "too small",
      "mount -t tmpfs -o size=8m tmpfs /dev/shm",
      "resource_exhausted",
      /needs 16 MiB .* has 8 of 8 MiB; .*--shm-size/,
    ],
    [
      "read-only",
      "mount -t tmpfs -o ro tmpfs /dev/shm",
      "failed_precondition",
      /\/dev\/shm is mounted read-only/,
    ],
    ["missing", "mount -t tmpfs tmpfs /dev", "failed_precondition", /\/dev\/shm is missing/],
  ])("that is %s fails the open with that reason", async (_, prepare, code, message) => {
    const outcome = await outcomeWith(prepare, 1);
    expect(outcome).toMatchObject({ code, message: expect.stringMatching(message) });
  });
});
