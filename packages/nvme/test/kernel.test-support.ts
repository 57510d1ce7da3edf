import { execFile } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { createServer } from "node:net";
import { promisify } from "node:util";
import { expect } from "vitest";
import { type Running, start } from "../../../test/processes/support/command-line.ts";

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

/** Starts `cinnabar disk serve` as a process and waits until it listens. */
export async function serveFile(file: string, port: number, nqn: string, bytes: number): Promise<Running> {
  const args = ["--bytes", `${bytes}`, "--nqn", nqn, "--nvme-tcp", `127.0.0.1:${port}`, "--json"];
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
): Promise<LinuxHost> {
  for (const port of ports)
    await run("nvme", "connect", ...addressOf(port), "-n", nqn, "--hostid", hostId, ...options);
  let disk = "";
  // The kernel looks for namespaces after the connection.
  await expect.poll(() => (disk = diskOf(nqn) ?? ""), { timeout: 60_000 }).not.toBe("");
  const disconnect = async () => void (await run("nvme", "disconnect", "-n", nqn));
  return { disk, disconnect, [Symbol.asyncDispose]: disconnect };
}

/** What names a target in the arguments of `nvme`. */
export const addressOf = (port: number): readonly string[] => [
  ...["-t", "tcp", "-a", "127.0.0.1", "-s", `${port}`, "--hostnqn", hostNqn],
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

/** What a file of sysfs says; empty where it has gone. */
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

/** What fio says of a job. */
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

/** Has a disk mounted while something is done. */
export async function mounted<T>(disk: string, folder: string, work: () => Promise<T>): Promise<T> {
  await run("mount", disk, folder);
  try {
    return await work();
  } finally {
    await run("umount", folder);
  }
}
