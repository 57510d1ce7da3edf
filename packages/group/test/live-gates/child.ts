import { type ChildProcess, fork } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";

export interface ChildOptions<R> {
  /** The name of a program of this folder, without its extension. */
  readonly program: string;
  onReport(report: R): void;
  /** A program and its arguments that start node. Default: node starts by itself. */
  readonly launcher?: readonly [string, ...string[]];
}

/** A process that takes orders and reports. It ends when its parent does. */
export class Child<O extends object, R> {
  readonly #name: string;
  readonly #process: ChildProcess;
  readonly #ended: Promise<void>;
  #isWanted = true;

  constructor({ program, onReport, launcher }: ChildOptions<R>) {
    this.#name = program;
    const [execPath, ...before] = launcher ?? [];
    this.#process = fork(fileURLToPath(new URL(`./${program}.js`, import.meta.url)), [], {
      stdio: ["ignore", "ignore", "inherit", "ipc"],
      serialization: "advanced",
      ...(execPath !== undefined && { execPath, execArgv: [...before, process.execPath] }),
    });
    this.#process.on("message", (report) => onReport(report as R));
    this.#ended = new Promise((resolve) => this.#process.once("exit", () => resolve()));
    this.#process.once("exit", (status, signal) => {
      // A gate's figures without it are worthless, so the whole program ends.
      if (this.#isWanted) throw new Error(`${this.#name} ended by itself (${signal ?? status})`);
    });
  }

  get pid(): number {
    return this.#process.pid as number;
  }

  order(order: O): void {
    this.#process.send(order, (error) => {
      if (error !== null && this.#isWanted) throw error;
    });
  }

  /** Ends it at once, also where it stands still. */
  kill(): void {
    this.#isWanted = false;
    this.#process.kill("SIGKILL");
  }

  /** Resolves when it has ended. */
  async ended(): Promise<void> {
    await this.#ended;
  }

  /** Resolves when all its threads stand still. */
  async stop(): Promise<void> {
    this.#process.kill("SIGSTOP");
    while (!standsStill(this.pid)) await pause(1);
  }

  resume(): void {
    this.#process.kill("SIGCONT");
  }
}

function standsStill(pid: number): boolean {
  return readdirSync(`/proc/${pid}/task`).every((task) =>
    /\) T /.test(readFileSync(`/proc/${pid}/task/${task}/stat`, "utf8")),
  );
}
