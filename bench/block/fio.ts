import { execFile } from "node:child_process";
import { promisify } from "node:util";

/** fio's arguments for a disk: its engine, and where the disk is. */
export type FioDisk = readonly string[];

/** A disk of this system, around the page cache. */
export const systemDisk = (path: string): FioDisk => [
  "--ioengine=io_uring",
  "--direct=1",
  `--filename=${path}`,
];

/** A disk of an NBD server, which fio reads and writes by libnbd. */
export const nbdDisk = (uri: string): FioDisk => ["--ioengine=nbd", `--uri=${uri}`];

/** What fio measured of blocks of 4 KiB, at random. */
export interface FioMeasured {
  readonly ops: number;
  readonly p50Us: number;
}

/** Writes every block once, so that reads find data and not holes. */
export async function fillByFio(disk: FioDisk): Promise<void> {
  await runFio([...disk, "--name=fill", "--rw=write", "--bs=1M", "--iodepth=4"]);
}

export async function measureByFio(
  disk: FioDisk,
  op: "read" | "write",
  depth: number,
  ms: number,
): Promise<FioMeasured> {
  const work = ["--name=round", "--bs=4k", `--rw=rand${op}`, `--iodepth=${depth}`];
  const length = ["--time_based", `--runtime=${Math.round(ms)}ms`];
  const output = await runFio([...disk, ...work, ...length, "--output-format=json"]);
  // Engines may say something before.
  const { iops, clat_ns } = JSON.parse(output.slice(output.indexOf("{"))).jobs[0][op];
  return { ops: Math.round(iops), p50Us: clat_ns.percentile["50.000000"] / 1000 };
}

/** Moves so many bytes in long blocks at random. Resolves with the seconds that it took. */
export async function moveByFio(
  disk: FioDisk,
  op: "read" | "write",
  block: string,
  depth: number,
  bytes: number,
): Promise<number> {
  const work = ["--name=long", `--bs=${block}`, `--rw=rand${op}`, `--iodepth=${depth}`, `--io_size=${bytes}`];
  const output = await runFio([...disk, ...work, "--output-format=json"]);
  const { io_bytes, runtime } = JSON.parse(output.slice(output.indexOf("{"))).jobs[0][op];
  if (io_bytes !== bytes) throw new Error(`fio moved ${io_bytes} bytes of ${bytes}`);
  return runtime / 1000;
}

async function runFio(args: readonly string[]): Promise<string> {
  return (await promisify(execFile)("fio", args)).stdout;
}
