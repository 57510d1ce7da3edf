import { execFile } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect } from "vitest";
import { root } from "../../../test/docs/pages.test-support.ts";
import { type Running, start } from "../../cli/test/support/command-line.ts";

/** The stage disks-kernel of `npm test` runs in the guest, where tests are root, and sets it. */
export const isGuest = process.env.CINNABAR_KERNEL_DISKS !== undefined;
export const mib = 1024 * 1024;

const execute = promisify(execFile);
/** Runs a program to its end for what it prints. */
export async function run(program: string, ...args: readonly string[]): Promise<string> {
  const { stdout } = await execute(program, args, { encoding: "utf8", maxBuffer: 64 * mib });
  return stdout;
}

/** A port of loopback that was free a moment ago: a target that is killed starts again at its own. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  server.close();
  await once(server, "close");
  return port;
}

/** What carries the commands of the kernel's host to the target. */
export type Carrier = "tcp" | "rdma";

/** Where targets listen: for RDMA at one device of Soft-RoCE, and the host comes from the other. */
export const targetHosts = { tcp: "127.0.0.1", rdma: "10.77.1.1" } as const;

/** Starts `cinnabar disk serve` as a process and waits until it listens. */
export async function serveFile(
  file: string,
  port: number,
  nqn: string,
  bytes: number,
  carrier: Carrier = "tcp",
  more: readonly string[] = [],
): Promise<Running> {
  const address = [`--nvme-${carrier}`, `${targetHosts[carrier]}:${port}`];
  const args = ["--bytes", `${bytes}`, "--nqn", nqn, "--allow-host", "any", ...address, ...more, "--json"];
  const running = start(["disk", "serve", file, ...args]);
  await running.lines(1);
  return running;
}

/** A host of the kernel, connected to a subsystem. */
export interface LinuxHost extends AsyncDisposable {
  /** The device of the first namespace, as `/dev/nvme0n1`. Several paths have one. */
  readonly disk: string;
  disconnect(): Promise<void>;
}

/** One NQN for the host of all tests. */
const hostId = "7a4d0c5e-9a3b-4b6a-8a53-3b8d1a1f6a10";
export const hostNqn = `nqn.2014-08.org.nvmexpress:uuid:${hostId}`;

/**
 * Connects the kernel's host, and waits for the disk.
 *
 * @param options of `nvme connect`
 */
export async function connect(
  nqn: string,
  ports: readonly number[],
  options: readonly string[] = [],
  carrier: Carrier = "tcp",
): Promise<LinuxHost> {
  for (const port of ports)
    await run("nvme", "connect", ...addressOf(port, carrier), "-n", nqn, "--hostid", hostId, ...options);
  const disk = await foundDisk(nqn);
  const disconnect = async () => void (await run("nvme", "disconnect", "-n", nqn));
  return { disk, disconnect, [Symbol.asyncDispose]: disconnect };
}

/** Waits for the disk of a subsystem: the kernel looks for namespaces after the connection. */
export async function foundDisk(nqn: string): Promise<string> {
  let disk = "";
  await expect.poll(() => (disk = diskOf(nqn) ?? ""), { timeout: 60_000 }).not.toBe("");
  return disk;
}

/** What names a target in the arguments of `nvme`. */
export const addressOf = (port: number, carrier: Carrier = "tcp"): readonly string[] => [
  ...["-t", carrier, "-a", targetHosts[carrier], "-s", `${port}`, "--hostnqn", hostNqn],
  ...(carrier === "rdma" ? ["--host-traddr", "10.77.1.2"] : []),
];

/** One path of a subsystem. */
export interface LinuxPath {
  /** The device of its controller, as `/dev/nvme0`. */
  readonly device: string;
  readonly port: number;
  /** Such as `live` and `connecting`. */
  readonly state: string;
  /** How it reaches the first namespace, such as `optimized`. */
  readonly access: string;
}

export function pathsOf(nqn: string): LinuxPath[] {
  return namedIn("/sys/class/nvme", nqn).map((folder) => {
    const namespace = readdirSync(folder).find((entry) => /^nvme\d+c\d+n\d+$/.test(entry));
    return {
      device: `/dev/${folder.split("/").at(-1)}`,
      port: Number(/trsvcid=(\d+)/.exec(fact(`${folder}/address`))?.[1]),
      state: fact(`${folder}/state`),
      access: fact(`${folder}/${namespace}/ana_state`),
    };
  });
}

/** The folder of a subsystem in sysfs. */
export const subsystemOf = (nqn: string): string | undefined => namedIn("/sys/class/nvme-subsystem", nqn)[0];

function diskOf(nqn: string): string | undefined {
  const folder = subsystemOf(nqn);
  const name = folder && readdirSync(folder).find((entry) => /^nvme\d+n\d+$/.test(entry));
  if (!name || !existsSync(`/dev/${name}`) || fact(`/sys/class/block/${name}/size`) === "0") return undefined;
  return `/dev/${name}`;
}

/** The folders of sysfs that belong to a subsystem. */
function namedIn(folder: string, nqn: string): string[] {
  if (!existsSync(folder)) return [];
  return readdirSync(folder)
    .map((entry) => `${folder}/${entry}`)
    .filter((one) => existsSync(`${one}/subsysnqn`) && fact(`${one}/subsysnqn`) === nqn);
}

/** The content of a file of sysfs; empty if the file has gone. */
function fact(path: string): string {
  try {
    return readFileSync(path, "utf8").trim();
  } catch {
    return "";
  }
}

/** Where configfs is, by which the kernel's own target and devices are made. */
export async function configfs(): Promise<string> {
  const folder = "/sys/kernel/config";
  if (readdirSync(folder).length === 0) await run("mount", "-t", "configfs", "none", folder);
  return folder;
}

/** The report of fio on a job. */
export interface FioJob {
  readonly read: { readonly io_bytes: number };
  readonly write: { readonly io_bytes: number };
}

/** Runs fio around the page cache; it fails where a block is wrong. */
export async function fio(disk: string, ...options: readonly string[]): Promise<FioJob> {
  const usual = ["--name=job", "--direct=1", "--ioengine=libaio", "--output-format=json"];
  const { jobs } = JSON.parse(await run("fio", `--filename=${disk}`, ...usual, ...options));
  return jobs[0];
}

/** What makes fio write blocks with checksums, and read them back. */
export const verified = ["--verify=crc32c", "--do_verify=1", "--verify_fatal=1"];

/** Short and long writes, each read back by its checksum. */
export async function verify(disk: string): Promise<void> {
  const short = await fio(disk, ...verified, "--rw=randwrite", "--bs=4k", "--iodepth=32", "--size=16M");
  expect(short.read.io_bytes).toBe(16 * mib);
  const mixed = ["--rw=randwrite", "--bsrange=4k-1M", "--iodepth=8", "--size=64M", "--fsync=16"];
  await fio(disk, ...verified, ...mixed);
}

/** Makes ext4 with these options of mkfs.ext4, copies a tree there, and reads it again when the page cache has none of it. */
export async function useFileSystem(
  disk: string,
  mountPoint: string,
  options: readonly string[] = [],
): Promise<void> {
  await run("mkfs.ext4", "-q", "-F", ...options, disk);
  await mounted(disk, mountPoint, async () => {
    await run("cp", "-r", join(root, "docs"), join(root, "src"), mountPoint);
    await run("sync", "-f", mountPoint);
  });
  await run("e2fsck", "-fn", disk);
  await writeFile("/proc/sys/vm/drop_caches", "3");
  await mounted(disk, mountPoint, async () => {
    for (const tree of ["docs", "src"]) await run("diff", "-r", join(root, tree), join(mountPoint, tree));
    // Space that is free again is trimmed.
    await run("rm", "-r", join(mountPoint, "src"));
    await run("fstrim", mountPoint);
    await run("diff", "-r", join(root, "docs"), join(mountPoint, "docs"));
  });
  await run("e2fsck", "-fn", disk);
}

/** Has a disk mounted while something is done. */
export async function mounted<T>(disk: string, folder: string, work: () => Promise<T>): Promise<T> {
  await run("mount", disk, folder);
  try {
    return await work();
  } finally {
    await run("umount", folder);
  }
}
