import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, afterEach, describe, expect, it } from "vitest";
import { freePort } from "../../../test/processes/support/etcd-server.ts";

const root = fileURLToPath(new URL("../../../", import.meta.url));
const program = join(root, "build/packages/group/test/programs/launched-member.js");
const folder = mkdtempSync(join(tmpdir(), "cinnabar-launch-"));
const size = 3;
const running: ChildProcess[] = [];

afterEach(async () => {
  for (const child of running.splice(0)) {
    if (child.exitCode !== null || child.signalCode !== null) continue;
    const exit = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGTERM");
    await exit;
  }
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Debian's Open MPI, as set-up has unpacked it, or the system's. Undefined without one: set-up has said so. */
function findMpirun(): { readonly command: string; readonly env: NodeJS.ProcessEnv } | undefined {
  const usr = join(root, "build/mpirun/usr");
  if (!existsSync(join(usr, "bin/mpirun.openmpi")))
    return spawnSync("mpirun", ["--version"]).status === 0 ? { command: "mpirun", env: {} } : undefined;
  const [libraries = ""] = readdirSync(join(usr, "lib")).map((name) => join(usr, "lib", name));
  const env = { OPAL_PREFIX: usr, LD_LIBRARY_PATH: `${libraries}:${libraries}/openmpi/lib` };
  return { command: join(usr, "bin/mpirun.openmpi"), env };
}

function start(command: string, args: readonly string[], env: NodeJS.ProcessEnv): ChildProcess {
  const child = spawn(command, args, {
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, NODE_OPTIONS: "", VITEST: "", ...env },
  });
  running.push(child);
  return child;
}

/** What the members print, until all have, and all processes have ended in order. */
async function reportsOf(file: string, children: readonly ChildProcess[]): Promise<unknown[]> {
  const reports: { readonly rank: number }[] = [];
  await Promise.all(
    children.map(
      (child) =>
        new Promise<void>((resolve, reject) => {
          let output = "";
          let errors = "";
          child.stdout?.on("data", (data) => {
            const lines = `${output}${data}`.split("\n");
            output = lines.pop() as string;
            for (const line of lines) if (line.startsWith("{")) reports.push(JSON.parse(line));
            if (reports.length === size) writeFileSync(`${file}.end`, "");
          });
          child.stderr?.on("data", (data) => {
            errors = `${errors}${data}`.slice(-4000);
          });
          child.once("close", (code) => (code === 0 ? resolve() : reject(new Error(`${code}: ${errors}`))));
        }),
    ),
  );
  return reports.sort((a, b) => a.rank - b.rank);
}

const expected = (launcher: string) =>
  Array.from({ length: size }, (_, rank) => ({ launcher, rank, ranks: [0, 1, 2] }));

describe("a group of processes that a launcher starts", () => {
  const mpirun = findMpirun();

  it.skipIf(mpirun === undefined)("meets by a file under mpirun of Open MPI", async () => {
    const file = join(folder, "openmpi.json");
    const options = ["--allow-run-as-root", "--oversubscribe", "-np", String(size)];
    const args = [...options, process.execPath, program, file];
    const child = start(mpirun?.command ?? "", args, mpirun?.env ?? {});
    expect(await reportsOf(file, [child])).toEqual(expected("openmpi"));
  });

  it("meets at the host of the first rank with the environment of srun", async () => {
    const file = join(folder, "slurm.json");
    const port = String(await freePort());
    const step = { SLURM_STEP_ID: "0", SLURM_STEP_NODELIST: "127.0.0.[1-1]", SLURM_NTASKS: String(size) };
    const children = Array.from({ length: size }, (_, rank) =>
      start(process.execPath, [program, file, port], { ...step, SLURM_PROCID: String(rank) }),
    );
    expect(await reportsOf(file, children)).toEqual(expected("slurm"));
  });
});
