import { readdirSync, readFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { NvmeTarget, openFileDevice } from "../src/index.ts";
import { type Carrier, isGuest, mib, run, targetHosts } from "./kernel.test-support.ts";

const nqn = "nqn.2026-11.test:reserved";
let folder = "";

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "cinnabar-kernel-"));
  await writeFile(join(folder, "block"), Buffer.alloc(4096, 0xab));
});
afterAll(() => rm(folder, { recursive: true }));

/** One of the kernel's hosts. Its controller takes its commands, since the disk of both is one. */
class LinuxOfId {
  readonly #id: string;
  #device = "";

  constructor(digit: number) {
    this.#id = `7a4d0c5e-9a3b-4b6a-8a53-00000000000${digit}`;
  }

  async connect(port: number, carrier: Carrier): Promise<void> {
    // nvme-cli takes the controller of another host for one of this host.
    const place = `transport=${carrier},traddr=${targetHosts[carrier]},trsvcid=${port},nqn=${nqn}`;
    const from = carrier === "rdma" ? ",host_traddr=10.77.1.2" : "";
    const host = `,hostnqn=nqn.2014-08.org.nvmexpress:uuid:${this.#id},hostid=${this.#id}`;
    await writeFile("/dev/nvme-fabrics", place + from + host);
    const all = "/sys/class/nvme";
    const name = readdirSync(all).find(
      (one) => readFileSync(`${all}/${one}/hostid`, "utf8").trim() === this.#id,
    );
    if (name === undefined) throw new Error(`no controller of ${this.#id}`);
    this.#device = `/dev/${name}`;
    // The kernel looks for namespaces after the connection, and takes no command for one before.
    await expect
      .poll(() => readdirSync(`${all}/${name}`).some((one) => /^nvme\d+c\d+n\d+$/.test(one)), {
        timeout: 60_000,
      })
      .toBe(true);
  }

  register = (...options: readonly string[]) => this.#run("resv-register", ...options);
  acquire = (...options: readonly string[]) => this.#run("resv-acquire", ...options);
  release = (...options: readonly string[]) => this.#run("resv-release", ...options);

  async report(): Promise<{ type: number; isKept: number; hosts: { key: number; isHolder: number }[] }> {
    const report = JSON.parse(await this.#run("resv-report", "-e", "-o", "json"));
    const hosts = Object.values(report).find(Array.isArray) as { rkey: number; rcsts: number }[];
    return {
      ...{ type: report.rtype, isKept: report.ptpls },
      hosts: hosts.map(({ rkey, rcsts }) => ({ key: Number(rkey), isHolder: rcsts })),
    };
  }

  read = () => this.#run("io-passthru", "-o", "2", "-r", "-l", "4096", "--cdw10=0");
  write = () =>
    this.#run("io-passthru", "-o", "1", "-w", "-l", "4096", "--cdw10=0", "-i", join(folder, "block"));

  #run(command: string, ...options: readonly string[]): Promise<string> {
    return run("nvme", command, this.#device, "-n", "1", ...options);
  }
}

describe.skipIf(!isGuest).each<Carrier>(["tcp", "rdma"])("reservations of Linux over NVMe/%s", (carrier) => {
  it("keep another host away by their type, are preempted, and outlive the target", async () => {
    const path = join(folder, `${carrier}.img`);
    const [one, other] = [new LinuxOfId(1), new LinuxOfId(2)];
    const conflict = /0x4083/;

    /** Both hosts at a target of the file. */
    async function served(work: () => Promise<void>): Promise<void> {
      await using device = await openFileDevice(path, { bytes: 16 * mib });
      const subsystems = [{ nqn, namespaces: [device], hosts: "any" as const }];
      await using target = await NvmeTarget.listen({ subsystems, port: 0 });
      const { port } =
        carrier === "rdma" ? await target.listenRdma({ host: targetHosts.rdma, port: 0 }) : target.address;
      try {
        for (const host of [one, other]) await host.connect(port, carrier);
        await work();
      } finally {
        await run("nvme", "disconnect", "-n", nqn);
      }
    }

    await served(async () => {
      for (const host of [one, other]) await host.write();
      await one.register("--nrkey=17", "--rrega=0", "--cptpl=3");
      await one.acquire("--crkey=17", "--rtype=1", "--racqa=0");
      await one.write();
      await other.read();
      await expect(other.write()).rejects.toThrow(conflict);
      await expect(other.acquire("--crkey=18", "--rtype=1", "--racqa=0")).rejects.toThrow(conflict);
      await other.register("--nrkey=18", "--rrega=0");
      await expect(other.write()).rejects.toThrow(conflict);
      await other.acquire("--crkey=18", "--prkey=17", "--rtype=2", "--racqa=1");
      await other.write();
      for (const command of [one.read, one.write]) await expect(command()).rejects.toThrow(conflict);
    });
    await served(async () => {
      expect(await one.report()).toEqual({ type: 2, isKept: 1, hosts: [{ key: 18, isHolder: 1 }] });
      await expect(one.read()).rejects.toThrow(conflict);
      await other.read();
      await other.release("--crkey=18", "--rtype=2", "--rrela=0");
      await one.write();
      await other.register("--crkey=18", "--rrega=1", "--cptpl=2");
      expect(await one.report()).toEqual({ type: 0, isKept: 0, hosts: [] });
    });
  });
});
