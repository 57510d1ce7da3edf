import { type ChildProcess, fork } from "node:child_process";
import { fileURLToPath } from "node:url";

/**
 * What a module that runs as a process of its own gives from `open`: methods that may take their time, of values that
 * IPC can carry.
 */
export interface Party {
  close(): Promise<void>;
}

/** What such a module exports. `args` are those of `Child.start`. */
export interface PartyModule {
  open(...args: readonly never[]): Promise<Party>;
}

export interface ChildOptions {
  /** Options of Node's own for the process, such as `--expose-gc`. */
  readonly execArgv?: readonly string[];
}

interface Answer {
  readonly id: number;
  readonly value?: unknown;
  readonly error?: string;
}

interface Waiting {
  readonly method: string;
  resolve(value: unknown): void;
  reject(error: Error): void;
}

type Methods<P> = {
  [Name in keyof P]: P[Name] extends (...args: infer _) => unknown ? Name : never;
}[keyof P];

const program = fileURLToPath(new URL("./child-process.js", import.meta.url));
const graceMs = 10_000;
const running = new Set<ChildProcess>();

/**
 * The near end of a party in a process of its own. A process that ends before it is asked to is an error that names it,
 * of whatever is asked of it.
 */
export class Child<P extends Party> {
  readonly #process: ChildProcess;
  readonly #name: string;
  readonly #ended: Promise<void>;
  readonly #waiting = new Map<number, Waiting>();
  #lost: Error | undefined;
  #asked = 0;

  private constructor(name: string, module: URL, args: readonly unknown[], options: ChildOptions) {
    this.#name = name;
    // Structured clones: typed arrays, undefined and NaN arrive as what they are.
    this.#process = fork(program, [module.href], {
      execArgv: [...(options.execArgv ?? [])],
      serialization: "advanced",
    });
    running.add(this.#process);
    this.#process.on("message", ({ id, value, error }: Answer) => {
      const waiting = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (error === undefined) waiting?.resolve(value);
      else waiting?.reject(new Error(`${name}, ${waiting.method}: ${error}`));
    });
    this.#ended = new Promise((resolve) => {
      this.#process.once("exit", (status, signal) => {
        running.delete(this.#process);
        this.#lost = new Error(`The process of ${name} ended with ${signal ?? status}`);
        for (const { reject } of this.#waiting.values()) reject(this.#lost);
        this.#waiting.clear();
        resolve();
      });
    });
    this.#process.send({ id: 0, method: "open", args });
  }

  /**
   * Starts a process and has it open the module, with arguments that IPC can carry.
   *
   * @param name who it is, in errors
   * @param module `new URL("./x.js", import.meta.url)`: the built file
   */
  static async start<P extends Party>(
    name: string,
    module: URL,
    args: readonly unknown[] = [],
    options: ChildOptions = {},
  ): Promise<Child<P>> {
    const child = new Child<P>(name, module, args, options);
    try {
      await child.#answer(0, "open");
    } catch (error) {
      await child.end();
      throw error;
    }
    return child;
  }

  get pid(): number {
    return this.#process.pid ?? -1;
  }

  ask<Name extends Methods<P> & string>(
    method: Name,
    ...args: P[Name] extends (...args: infer Args) => unknown ? Args : never
  ): P[Name] extends (...args: infer _) => Promise<infer Value> ? Promise<Value> : never {
    const id = ++this.#asked;
    const answer = this.#answer(id, method);
    if (this.#lost === undefined) this.#process.send({ id, method, args });
    return answer as never;
  }

  /** Lets the process close what it has and end; one that does not is killed. */
  async end(): Promise<void> {
    if (this.#process.connected) this.#process.disconnect();
    const kill = setTimeout(() => {
      console.error(`${this.#name} does not end and is killed`);
      this.#process.kill("SIGKILL");
    }, graceMs);
    await this.#ended;
    clearTimeout(kill);
  }

  #answer(id: number, method: string): Promise<unknown> {
    if (this.#lost !== undefined) return Promise.reject(this.#lost);
    return new Promise((resolve, reject) => this.#waiting.set(id, { method, resolve, reject }));
  }
}

/**
 * When the program is told to end, its children end with it: they may close what they have for a moment, then they are
 * killed.
 */
export function endChildrenOnSignal(): void {
  const momentMs = 1000;
  let isEnding = false;
  for (const [signal, status] of [
    ["SIGINT", 130],
    ["SIGTERM", 143],
  ] as const) {
    process.on(signal, () => {
      if (isEnding) return;
      isEnding = true;
      for (const child of running) if (child.connected) child.disconnect();
      setTimeout(() => {
        for (const child of running) child.kill("SIGKILL");
        process.exit(status);
      }, momentMs);
    });
  }
}
