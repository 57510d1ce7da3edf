import { type ChildProcess, fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import type { Party } from "./party.ts";

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

const program = fileURLToPath(new URL("./party-process.js", import.meta.url));
const graceMs = 10_000;

/** The near end of a party in a process of its own. */
export class RemoteParty<P extends Party = Party> {
  readonly #child: ChildProcess;
  readonly #name: string;
  readonly #ended: Promise<void>;
  readonly #waiting = new Map<number, Waiting>();
  #asked = 0;

  private constructor(name: string, transport: string, address: string) {
    this.#name = name;
    this.#child = fork(program, [name, transport, address]);
    this.#child.on("message", ({ id, value, error }: Answer) => {
      const waiting = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (error === undefined) waiting?.resolve(value);
      else waiting?.reject(new Error(`${name} ${transport}, ${waiting.method}: ${error}`));
    });
    this.#ended = new Promise((resolve) => {
      this.#child.once("exit", (status, signal) => {
        const error = new Error(`the process of ${name} ${transport} ended with ${signal ?? status}`);
        for (const { reject } of this.#waiting.values()) reject(error);
        this.#waiting.clear();
        resolve();
      });
    });
  }

  /** Starts the process; resolves, with where it can be found, when it is ready. */
  static async start<P extends Party>(
    name: string,
    transport: string,
    address = "",
  ): Promise<{ readonly party: RemoteParty<P>; readonly address: string }> {
    const party = new RemoteParty<P>(name, transport, address);
    return { party, address: (await party.#answer(0, "open")) as string };
  }

  ask<Name extends Methods<P> & string>(
    method: Name,
    ...args: P[Name] extends (...args: infer Args) => unknown ? Args : never
  ): P[Name] extends (...args: infer _) => Promise<infer Value> ? Promise<Value> : never {
    const id = ++this.#asked;
    const answer = this.#answer(id, method);
    this.#child.send({ id, method, args });
    return answer as never;
  }

  /** Lets the process close what it has and end; one that does not is killed. */
  async end(): Promise<void> {
    if (this.#child.connected) this.#child.disconnect();
    const kill = setTimeout(() => {
      console.error(`${this.#name} does not end and is killed`);
      this.#child.kill("SIGKILL");
    }, graceMs);
    await this.#ended;
    clearTimeout(kill);
  }

  #answer(id: number, method: string): Promise<unknown> {
    return new Promise((resolve, reject) => this.#waiting.set(id, { method, resolve, reject }));
  }
}
