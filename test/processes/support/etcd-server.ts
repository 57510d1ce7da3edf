import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { connect, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { vi } from "vitest";

const ofSetUp = fileURLToPath(new URL("../../../build/etcd/usr/bin/etcd", import.meta.url));

/** The program; undefined where set-up could not get it, and said so. */
export const etcd = existsSync(ofSetUp)
  ? ofSetUp
  : spawnSync("etcd", ["--version"]).status === 0
    ? "etcd"
    : undefined;

/** A real server of etcd, with its data in a folder of its own. */
export class EtcdServer {
  readonly url: string;
  readonly #peerUrl: string;
  readonly #data = mkdtempSync(join(tmpdir(), "cinnabar-etcd-"));
  #process: ChildProcess | undefined;
  #stderr = "";

  static async start(): Promise<EtcdServer> {
    const server = new EtcdServer(await freePort(), await freePort());
    await server.run();
    return server;
  }

  private constructor(port: number, peerPort: number) {
    this.url = `http://127.0.0.1:${port}`;
    this.#peerUrl = `http://127.0.0.1:${peerPort}`;
  }

  /** Starts it, again with the same data, and waits until it answers. */
  async run(): Promise<void> {
    const urls = ["--listen-client-urls", this.url, "--advertise-client-urls", this.url];
    const peers = ["--listen-peer-urls", this.#peerUrl, "--initial-advertise-peer-urls", this.#peerUrl];
    const cluster = ["--initial-cluster", `default=${this.#peerUrl}`];
    const args = ["--data-dir", this.#data, ...urls, ...peers, ...cluster];
    this.#process = spawn(etcd ?? "etcd", args, {
      stdio: ["ignore", "ignore", "pipe"],
      // Debian's build does not count 64-bit ARM among what it supports.
      env: { ...process.env, ETCD_UNSUPPORTED_ARCH: process.arch },
    });
    this.#process.stderr?.on("data", (data) => {
      this.#stderr = `${this.#stderr}${data}`.slice(-4000);
    });
    const wait = { timeout: 60_000, interval: 50 };
    await vi
      .waitFor(() => this.#requireHealth(), wait)
      .catch((error) => {
        throw new Error(`etcd does not answer: ${this.#stderr}`, { cause: error });
      });
  }

  /** One request of its gateway. */
  async post(path: string, body: object): Promise<Record<string, unknown>> {
    const response = await fetch(new URL(path, this.url), { method: "POST", body: JSON.stringify(body) });
    return (await response.json()) as Record<string, unknown>;
  }

  /** Resolves when all its threads stand still. */
  async stop(): Promise<void> {
    this.#process?.kill("SIGSTOP");
    const tasks = `/proc/${this.#process?.pid}/task`;
    await vi.waitFor(
      () => {
        for (const task of readdirSync(tasks))
          if (!/\) T /.test(readFileSync(join(tasks, task, "stat"), "utf8"))) throw new Error("etcd runs");
      },
      { timeout: 60_000, interval: 5 },
    );
  }

  resume(): void {
    this.#process?.kill("SIGCONT");
  }

  /** Ends the process as a power failure does. The data stay. */
  async kill(): Promise<void> {
    const child = this.#process;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGKILL");
    await ended;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
    rmSync(this.#data, { recursive: true, force: true });
  }

  async #requireHealth(): Promise<void> {
    const { health } = (await (await fetch(`${this.url}/health`)).json()) as { health?: unknown };
    if (health !== "true") throw new Error(`its health is ${health}`);
  }
}

/** A way to a server that can be cut, without either side closing it. */
export class Cable {
  readonly #sockets = new Set<Socket>();
  readonly #server: Server;
  #isCut = false;

  static async to(url: string): Promise<Cable> {
    const cable = new Cable(Number(new URL(url).port));
    await new Promise<void>((resolve) => cable.#server.listen(0, "127.0.0.1", resolve));
    return cable;
  }

  private constructor(port: number) {
    this.#server = createServer((near) => {
      const far = connect(port, "127.0.0.1");
      for (const [from, to] of [
        [near, far],
        [far, near],
      ] as const) {
        this.#sockets.add(from);
        from.on("data", (data) => this.#isCut || to.write(data));
        from.on("error", () => to.destroy());
        from.on("close", () => {
          this.#sockets.delete(from);
          to.destroy();
        });
      }
    });
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as { port: number }).port}`;
  }

  /** Whether what is sent is lost. */
  set isCut(isCut: boolean) {
    this.#isCut = isCut;
  }

  /** Ends all connections at once. */
  reset(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.reset();
    await closed;
  }
}

/** A port where nobody listens. */
export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { port: number };
  await new Promise((resolve) => server.close(resolve));
  return port;
}
