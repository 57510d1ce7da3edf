// `npm run demo:storage [-- --over shm,tcp,nvme-tcp,nbd] [--mib N] [--kills N]`: a process serves a file as a disk, and
// is killed while others write to it. With `--mirror` two processes serve a disk, and each is killed in turn.
import { setMaxListeners } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { Engine } from "cinnabar";
import { describe, stopSignal } from "../lifetime.ts";
import { formatBytes } from "../report.ts";
import { DiskServer } from "./disk-server.ts";
import { runMirror } from "./mirror.ts";
import { missingProgram, useByNbdClients } from "./nbd.ts";
import { useByHost } from "./nvme.ts";
import type { Plan } from "./plan.ts";
import { formatResults, legend, type Result } from "./report.ts";
import { blockBytes } from "./stamps.ts";

const howToServe = [
  "Serve a disk of your own:",
  "  npx cinnabar disk serve disk.img --bytes 1GiB --nvme-tcp 127.0.0.1:4420 --nbd disk.sock",
  "docs/guide/disks.md has the commands by which Linux mounts it.",
].join("\n");

const stop = stopSignal();
// Each operation that is under way listens to it.
setMaxListeners(0, stop);
try {
  const { values } = parseArgs({
    options: {
      over: { type: "string", default: "shm,tcp,nvme-tcp,nbd" },
      mib: { type: "string" },
      kills: { type: "string", default: "3" },
      mirror: { type: "boolean", default: false },
    },
  });
  const bytes = countOf("--mib", values.mib ?? (values.mirror ? "64" : "32"), 1, 512) * 1024 * 1024;
  const kills = countOf("--kills", values.kills, 0, 20);
  process.exitCode = values.mirror ? await mirrored(bytes) : await run(values.over.split(","), bytes, kills);
} catch (error) {
  console.error(`demo: ${stop.aborted ? `ended by ${describe(stop.reason)}` : describe(error)}`);
  const wasTerminated = stop.aborted && describe(stop.reason) === "SIGTERM";
  process.exitCode = wasTerminated ? 143 : stop.aborted ? 130 : 1;
}

async function run(ways: readonly string[], bytes: number, kills: number): Promise<number> {
  const folder = await mkdtemp(join(tmpdir(), "cinnabar-demo-storage-"));
  let server: DiskServer | undefined;
  try {
    const doors = {
      ...{ shm: `shm://cinnabar-demo-${process.pid}`, tcp: "tcp://127.0.0.1:0" },
      ...{ nvmePort: 0, nbd: join(folder, "disk.sock") },
    };
    server = await DiskServer.start({ file: join(folder, "disk.img"), bytes, doors });
    console.log(`process ${server.pid} serves a file of ${formatBytes(bytes)} as a disk, four ways at once`);
    const plan: Plan = { blocks: bytes / blockBytes, kills, folder, signal: stop };
    const results: Result[] = [];
    for (const way of ways) {
      const missing = way === "nbd" ? await missingProgram() : undefined;
      if (missing !== undefined) console.log(`nbd is left out: there is no ${missing} here`);
      else results.push(await use(way, server, plan));
    }
    console.log(`\n${formatResults(results)}\n\n${legend}\n\n${howToServe}`);
    return results.every(({ blocks, verified }) => verified === blocks) ? 0 : 1;
  } finally {
    await server?.end();
    await rm(folder, { recursive: true, force: true });
  }
}

async function mirrored(bytes: number): Promise<number> {
  const missing = await missingProgram(["qemu-storage-daemon"]);
  if (missing !== undefined) throw new Error(`--mirror needs ${missing}, which is not here`);
  const folder = await mkdtemp(join(tmpdir(), "cinnabar-demo-mirror-"));
  try {
    return (await runMirror({ blocks: bytes / blockBytes, kills: 2, folder, signal: stop })) ? 0 : 1;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function use(way: string, server: DiskServer, plan: Plan): Promise<Result> {
  const { shm, tcp, nvmePort } = server.doors;
  if (way === "nbd") return useByNbdClients(server, plan);
  if (way === "nvme-tcp") return useByHost(way, { host: "127.0.0.1", port: nvmePort }, server, plan);
  if (way !== "shm" && way !== "tcp")
    throw new Error(`--over takes shm, tcp, nvme-tcp and nbd, not "${way}"`);
  await using engine = await Engine.open();
  return await useByHost(way, { engine, url: way === "shm" ? shm : tcp }, server, plan);
}

function countOf(option: string, text: string, low: number, high: number): number {
  const count = Number(text);
  if (Number.isInteger(count) && count >= low && count <= high) return count;
  throw new Error(`${option} must be an integer from ${low} to ${high}, it is "${text}"`);
}
