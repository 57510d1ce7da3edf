import { mkdir, rm, rmdir, symlink, writeFile } from "node:fs/promises";
import { configfs, freePort, hostNqn, mib } from "./kernel.test-support.ts";

export const bytes = 32 * mib;
export const nqn = "nqn.2026-11.test:nvmet";

/** The kernel's own target, on a disk in memory. */
export interface LinuxTarget extends AsyncDisposable {
  readonly port: number;
  /** Stops listening, which ends every controller, and listens again. */
  restart(): Promise<void>;
}

/** What the target knows of the host of the tests: `dhchap_key`, `dhchap_hash` and so on. */
export type HostValues = Readonly<Record<string, string>>;

/** @param values of the one host that it admits. Undefined: it admits all. */
export async function linuxTarget(values?: HostValues): Promise<LinuxTarget> {
  const config = await configfs();
  const disk = `${config}/nullb/served`;
  const subsystem = `${config}/nvmet/subsystems/${nqn}`;
  const port = `${config}/nvmet/ports/1`;
  const listening = `${port}/subsystems/${nqn}`;
  const host = `${config}/nvmet/hosts/${hostNqn}`;
  const admitted = `${subsystem}/allowed_hosts/${hostNqn}`;
  const trsvcid = await freePort();
  const set = async (folder: string, values: Readonly<Record<string, string | number>>) => {
    for (const [name, value] of Object.entries(values)) await writeFile(`${folder}/${name}`, `${value}`);
  };
  await mkdir(disk);
  await set(disk, { size: bytes / mib, blocksize: 4096, memory_backed: 1, discard: 1, power: 1 });
  await mkdir(subsystem);
  await set(subsystem, { attr_allow_any_host: values === undefined ? 1 : 0 });
  if (values !== undefined) {
    await mkdir(host);
    await set(host, values);
    await symlink(host, admitted);
  }
  await mkdir(`${subsystem}/namespaces/1`);
  await set(`${subsystem}/namespaces/1`, { device_path: "/dev/served", enable: 1 });
  await mkdir(port);
  const address = { addr_trtype: "tcp", addr_adrfam: "ipv4", addr_traddr: "127.0.0.1" };
  await set(port, { ...address, addr_trsvcid: trsvcid });
  await symlink(subsystem, listening);
  return {
    port: trsvcid,
    async restart() {
      await rm(listening);
      await symlink(subsystem, listening);
    },
    async [Symbol.asyncDispose]() {
      await rm(listening);
      await rmdir(port);
      await rmdir(`${subsystem}/namespaces/1`);
      if (values !== undefined) {
        await rm(admitted);
        await rmdir(host);
      }
      await rmdir(subsystem);
      await set(disk, { power: 0 });
      await rmdir(disk);
    },
  };
}
