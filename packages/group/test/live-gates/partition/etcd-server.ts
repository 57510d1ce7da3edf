import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";

const program = fileURLToPath(new URL("../../../../../../build/etcd/usr/bin/etcd", import.meta.url));

/** Whether set-up has got the program. */
export const hasEtcd = existsSync(program);

interface View {
  readonly version: number;
  readonly ranks: readonly number[];
}

/** A real server of etcd, with its data in a folder of its own. */
export class EtcdServer implements AsyncDisposable {
  readonly url: string;
  readonly #data = mkdtempSync(join(tmpdir(), "cinnabar-etcd-"));
  readonly #process: ChildProcess;

  /** Resolves when it answers. */
  static async start(ip: string): Promise<EtcdServer> {
    const server = new EtcdServer(ip);
    while (!(await server.#isHealthy())) await pause(50);
    return server;
  }

  private constructor(ip: string) {
    this.url = `http://${ip}:2379`;
    const peers = `http://${ip}:2380`;
    const args = [
      ...["--data-dir", this.#data, "--initial-cluster", `default=${peers}`],
      ...["--listen-client-urls", this.url, "--advertise-client-urls", this.url],
      ...["--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers],
    ];
    // Debian's build does not count 64-bit ARM among what it supports.
    const env = { ...process.env, ETCD_UNSUPPORTED_ARCH: process.arch };
    this.#process = spawn(program, args, { stdio: "ignore", env });
  }

  /** Every view that it ever had of a group, the first one first. */
  async viewsOf(group: string): Promise<View[]> {
    const key = Buffer.from(`/cinnabar/groups/${group}/view`).toString("base64");
    const views: View[] = [];
    for (let revision: string | undefined; ; ) {
      const { kvs } = (await this.#post("/v3/kv/range", { key, ...(revision && { revision }) })) as {
        readonly kvs?: readonly { readonly value: string; readonly mod_revision: string }[];
      };
      const [kv] = kvs ?? [];
      if (kv === undefined) return views.reverse();
      const { version, members } = JSON.parse(Buffer.from(kv.value, "base64").toString()) as {
        readonly version: number;
        readonly members: readonly { readonly rank: number }[];
      };
      views.push({ version, ranks: members.map(({ rank }) => rank) });
      revision = String(BigInt(kv.mod_revision) - 1n);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const ended = new Promise((resolve) => this.#process.once("exit", resolve));
    this.#process.kill("SIGKILL");
    await ended;
    rmSync(this.#data, { recursive: true, force: true });
  }

  async #isHealthy(): Promise<boolean> {
    if (this.#process.exitCode !== null) throw new Error(`etcd ended with ${this.#process.exitCode}`);
    const answer = await fetch(`${this.url}/health`).catch(() => undefined);
    return answer?.ok === true;
  }

  async #post(path: string, body: object): Promise<unknown> {
    const response = await fetch(new URL(path, this.url), { method: "POST", body: JSON.stringify(body) });
    return response.json();
  }
}
