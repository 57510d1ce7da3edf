import { execFile } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { mkdir, rm, rmdir, symlink, writeFile } from "node:fs/promises";
import { setTimeout as pause } from "node:timers/promises";
import { promisify } from "node:util";
import { lackOfProgram } from "../suite/installed.ts";
import { diskBytes, nqn } from "./subjects.ts";

const MiB = 1024 * 1024;

/** What carries NVMe between Linux and a target. */
export type Carrier = "tcp" | "rdma";

/** Where targets listen. The addresses of RDMA are those of the guest's Soft-RoCE devices. */
export const targetHosts = { tcp: "127.0.0.1", rdma: "10.77.1.1" } as const;
const hostOfRdma = "10.77.1.2";
const execute = promisify(execFile);

/** Why Linux is neither host nor target of NVMe here; undefined where it is. */
export function lackOfLinux(): string | undefined {
  if (!existsSync("/dev/nvme-fabrics") || !existsSync("/sys/module/nvmet_tcp") || process.getuid?.() !== 0)
    return "needs the kernel of the guest: npm run bench:rdma -- rxe linux-disk";
  const lacks = ["nvme", "fio"].map((name) => lackOfProgram(name, "npm test -- disks-kernel installs it"));
  return lacks.find((lack) => lack !== undefined);
}

/** Connects the kernel's host by one queue, and gives its disk. */
export async function connectLinux(carrier: Carrier, subsystem: string, port: string): Promise<string> {
  const at = ["-t", carrier, "-a", targetHosts[carrier], "-s", port, "-n", subsystem, "--nr-io-queues=1"];
  await execute("nvme", ["connect", ...at, ...(carrier === "rdma" ? ["--host-traddr", hostOfRdma] : [])]);
  for (;;) {
    const disk = diskOf(subsystem);
    if (disk !== undefined) return disk;
    await pause(10);
  }
}

export const disconnectLinux = async (subsystem: string): Promise<void> =>
  void (await execute("nvme", ["disconnect", "-n", subsystem]));

function diskOf(subsystem: string): string | undefined {
  const folder = "/sys/class/nvme-subsystem";
  const own = readdirSync(folder).find(
    (name) => readFileSync(`${folder}/${name}/subsysnqn`, "utf8").trim() === subsystem,
  );
  const disk = own && readdirSync(`${folder}/${own}`).find((name) => /^nvme\d+n\d+$/.test(name));
  return disk && existsSync(`/dev/${disk}`) ? `/dev/${disk}` : undefined;
}

/** The kernel's own target, on a null_blk that keeps its blocks in memory. */
export interface Nvmet {
  readonly nqn: string;
  readonly port: string;
  close(): Promise<void>;
}

export async function openNvmet(carrier: Carrier): Promise<Nvmet> {
  const config = "/sys/kernel/config";
  if (readdirSync(config).length === 0) await execute("mount", ["-t", "configfs", "none", config]);
  const own = `${nqn}-nvmet`;
  const disk = `${config}/nullb/bench`;
  const subsystem = `${config}/nvmet/subsystems/${own}`;
  const port = `${config}/nvmet/ports/1`;
  const set = async (folder: string, values: Readonly<Record<string, string | number>>) => {
    for (const [name, value] of Object.entries(values)) await writeFile(`${folder}/${name}`, `${value}`);
  };
  await mkdir(disk);
  await set(disk, { size: diskBytes / MiB, blocksize: 4096, memory_backed: 1, power: 1 });
  await mkdir(subsystem);
  await set(subsystem, { attr_allow_any_host: 1 });
  await mkdir(`${subsystem}/namespaces/1`);
  await set(`${subsystem}/namespaces/1`, { device_path: "/dev/bench", enable: 1 });
  await mkdir(port);
  const address = { addr_trtype: carrier, addr_adrfam: "ipv4", addr_traddr: targetHosts[carrier] };
  await set(port, { ...address, addr_trsvcid: 4421 });
  await symlink(subsystem, `${port}/subsystems/${own}`);
  return {
    nqn: own,
    port: "4421",
    async close() {
      await rm(`${port}/subsystems/${own}`);
      await rmdir(port);
      await rmdir(`${subsystem}/namespaces/1`);
      await rmdir(subsystem);
      await set(disk, { power: 0 });
      await rmdir(disk);
    },
  };
}
