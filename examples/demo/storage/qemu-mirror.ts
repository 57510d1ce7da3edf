import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { createConnection, type Socket } from "node:net";
import { join } from "node:path";
import { createInterface, type Interface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";

/** The export under which the mirror is served. */
export const mirrorExport = "mirror";

/** QEMU's quorum driver over two disks, in a process of its own that serves the mirror over NBD. */
export class QemuMirror {
  /** The socket of the mirror. */
  readonly path: string;
  readonly #child: ChildProcess;
  readonly #socket: Socket;
  readonly #lines: AsyncIterator<string>;
  readonly #names: string[];
  #made = 0;

  private constructor(child: ChildProcess, socket: Socket, path: string) {
    this.#child = child;
    this.#socket = socket;
    this.path = path;
    const lines: Interface = createInterface({ input: socket });
    this.#lines = lines[Symbol.asyncIterator]();
    this.#names = ["disk0", "disk1"];
  }

  /** Starts it over the exports `disk` of two sockets. Reads go to the first disk while it answers. */
  static async start(folder: string, disks: readonly [string, string]): Promise<QemuMirror> {
    const [control, path] = [join(folder, "control.sock"), join(folder, "mirror.sock")];
    const nodes = disks.flatMap((disk, index) => ["--blockdev", blockdevOf(`disk${index}`, disk)]);
    const quorum = "driver=quorum,node-name=mirror,vote-threshold=1,read-pattern=fifo";
    const child = spawn(
      "qemu-storage-daemon",
      [
        ...[
          "--chardev",
          `socket,path=${control},server=on,wait=off,id=control`,
          "--monitor",
          "chardev=control",
        ],
        ...nodes,
        ...["--blockdev", `${quorum},children.0=disk0,children.1=disk1`],
        ...["--nbd-server", `addr.type=unix,addr.path=${path}`],
        ...["--export", `type=nbd,id=export,node-name=mirror,name=${mirrorExport},writable=on`],
      ],
      { stdio: ["ignore", "inherit", "inherit"] },
    );
    const failed = once(child, "exit").then(([status]) => {
      throw new Error(`qemu-storage-daemon ended with ${status}`);
    });
    failed.catch(() => {});
    try {
      while (!existsSync(control) || !existsSync(path)) await Promise.race([pause(20), failed]);
      const socket = createConnection(control);
      await once(socket, "connect");
      const mirror = new QemuMirror(child, socket, path);
      await mirror.#lines.next(); // its greeting
      await mirror.#command("qmp_capabilities");
      return mirror;
    } catch (error) {
      child.kill("SIGKILL");
      throw error;
    }
  }

  /** Takes a disk out, so that it is not written any more, nor read when it comes back. */
  async drop(index: 0 | 1): Promise<void> {
    const children = await this.#childrenOf(this.#names[index] ?? "");
    await this.#command("x-blockdev-change", { parent: "mirror", child: children });
    await this.#command("blockdev-del", { "node-name": this.#names[index] });
  }

  /** Adds a disk that has all blocks of the mirror. */
  async add(index: 0 | 1, path: string): Promise<void> {
    const name = `again${this.#made++}`;
    await this.#command("blockdev-add", nodeOf(name, path));
    await this.#command("x-blockdev-change", { parent: "mirror", node: name });
    this.#names[index] = name;
  }

  async end(): Promise<void> {
    this.#socket.destroy();
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    this.#child.kill("SIGTERM");
    await once(this.#child, "exit");
  }

  /** The name of the quorum's child that a node is. */
  async #childrenOf(node: string): Promise<string> {
    const graph = (await this.#command("x-debug-query-block-graph")) as {
      readonly nodes: readonly { readonly id: number; readonly name: string }[];
      readonly edges: readonly { readonly parent: number; readonly child: number; readonly name: string }[];
    };
    const idOf = (name: string) => graph.nodes.find((one) => one.name === name)?.id;
    const edge = graph.edges.find(({ parent, child }) => parent === idOf("mirror") && child === idOf(node));
    if (edge === undefined) throw new Error(`the mirror has no disk ${node}`);
    return edge.name;
  }

  async #command(execute: string, args: object = {}): Promise<unknown> {
    this.#socket.write(`${JSON.stringify({ execute, arguments: args })}\n`);
    for (;;) {
      const { value, done } = await this.#lines.next();
      if (done) throw new Error(`qemu-storage-daemon ended before it had done ${execute}`);
      const answer = JSON.parse(value);
      if ("error" in answer) throw new Error(`${execute}: ${answer.error.desc}`);
      // Other lines are events.
      if ("return" in answer) return answer.return;
    }
  }
}

const nodeOf = (name: string, path: string) => ({
  ...{ driver: "nbd", "node-name": name, export: "disk", "reconnect-delay": 0 },
  server: { type: "unix", path },
});

const blockdevOf = (name: string, path: string): string => JSON.stringify(nodeOf(name, path));
