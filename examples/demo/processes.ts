import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

const graceMs = 10_000;

/** How a process ended: its status, or the name of the signal that ended it. */
export type Ending = number | NodeJS.Signals;

/** A process of a demo, from start to end. */
export class Role {
  readonly name: string;
  readonly ended: Promise<Ending>;
  readonly #child: ChildProcess;

  /** `name`: the program beside this file, such as `server`. */
  constructor(name: string, args: readonly string[]) {
    this.name = name;
    const program = fileURLToPath(new URL(`./${name}.js`, import.meta.url));
    this.#child = fork(program, args, { stdio: ["ignore", "inherit", "inherit", "ipc"] });
    this.ended = new Promise((resolve, reject) => {
      this.#child.once("error", reject);
      this.#child.once("exit", (status, signal) => resolve(signal ?? status ?? 1));
    });
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  /** Its first message, or undefined when it ends without one. */
  async announcement<T>(): Promise<T | undefined> {
    const message = once(this.#child, "message").then(([said]) => said as T);
    return Promise.race([message, this.ended.then(() => undefined)]);
  }

  /** Kills it, and waits for its end. */
  kill(): Promise<Ending> {
    this.#child.kill("SIGKILL");
    return this.ended;
  }

  /** Asks it to end and waits for that; one that does not listen is killed after a while. */
  async end(): Promise<Ending> {
    this.#child.kill("SIGTERM");
    const kill = setTimeout(() => this.#child.kill("SIGKILL"), graceMs);
    try {
      return await this.ended;
    } finally {
      clearTimeout(kill);
    }
  }
}
