import { Child } from "../suite/child.ts";
import { warmUp } from "../suite/warm-up.ts";
import type { Run } from "../suite/workload.ts";
import type { ClientParty, Measured } from "./client-party.ts";
import type { ContenderEntry } from "./index.ts";
import type { Payload } from "./payloads.ts";
import type { ServerParty } from "./server-party.ts";

/**
 * Starts the contenders, and ends them whatever becomes of `work`. One that cannot start is told as a lack, and the
 * others go on.
 */
export async function withContenders<T>(
  run: Run,
  entries: readonly ContenderEntry[],
  work: (running: readonly Running[]) => Promise<T>,
): Promise<T> {
  const running: Running[] = [];
  try {
    for (const entry of entries) {
      try {
        running.push(await Running.start(entry, run.verbsHost));
      } catch (error) {
        run.lack(entry.title, error instanceof Error ? error.message : String(error));
      }
    }
    return await work(running);
  } finally {
    for (const one of running) await one.end();
  }
}

/** How many calls every client has made before it is measured. */
const warmUpCalls = 15_000;

/** Calls a second of all clients together. */
export function callsPerSecond(clients: readonly Measured[]): number {
  return clients.reduce((sum, { calls, elapsedMs }) => sum + (calls / elapsedMs) * 1000, 0);
}

/** A contender at work: its server and its clients, each a process. */
export class Running {
  readonly entry: ContenderEntry;
  readonly clients: Child<ClientParty>[] = [];
  readonly #server: Child<ServerParty> | undefined;
  readonly #args: readonly unknown[];
  /** How many calls each client has made. */
  readonly #calls: number[] = [];

  private constructor(
    entry: ContenderEntry,
    server: Child<ServerParty> | undefined,
    args: readonly unknown[],
  ) {
    this.entry = entry;
    this.#server = server;
    this.#args = args;
  }

  /** With one client. */
  static async start(entry: ContenderEntry, verbsHost: string | undefined): Promise<Running> {
    const id = `${process.pid}-${entry.key}`;
    const server = entry.isSelfServing
      ? undefined
      : await Child.start<ServerParty>(
          `${entry.title}, server`,
          new URL("./server-party.js", import.meta.url),
          [entry.key, id, verbsHost],
        );
    let running: Running | undefined;
    try {
      const address = (await server?.ask("address")) ?? "";
      running = new Running(entry, server, [entry.key, id, address, verbsHost]);
      await running.join(1);
      return running;
    } catch (error) {
      if (running === undefined) await server?.end();
      else await running.end();
      throw error;
    }
  }

  /** Starts further clients until there are so many. Each has compared what comes back with what it sent. */
  async join(count: number): Promise<void> {
    while (this.clients.length < count) {
      const client = await Child.start<ClientParty>(
        `${this.entry.title}, client ${this.clients.length + 1}`,
        new URL("./client-party.js", import.meta.url),
        this.#args,
      );
      this.clients.push(client);
      this.#calls.push(0);
      await client.ask("check");
    }
  }

  get client(): Child<ClientParty> {
    return this.clients[0] as Child<ClientParty>;
  }

  /** All clients call at once. */
  async measure(payload: Payload, inFlight: number, durationMs: number): Promise<Measured[]> {
    const each = this.clients.map((client) => client.ask("measure", payload, inFlight, durationMs));
    const measured = await Promise.all(each);
    for (const [index, { calls }] of measured.entries())
      this.#calls[index] = (this.#calls[index] ?? 0) + calls;
    return measured;
  }

  /** All clients call until V8 has compiled the way of a call in each of them. */
  warmUp(payload: Payload, inFlight: number, roundMs: number): Promise<void> {
    const stretch = async (durationMs: number) =>
      callsPerSecond(await this.measure(payload, inFlight, durationMs));
    return warmUp(roundMs, stretch, () => this.#calls.every((calls) => calls >= warmUpCalls));
  }

  /** The processes: the server first, where it has one of its own. */
  get pids(): readonly number[] {
    return [...(this.#server === undefined ? [] : [this.#server]), ...this.clients].map(({ pid }) => pid);
  }

  /** The clients first, so that nobody sees a lost peer. */
  async end(): Promise<void> {
    await Promise.all(this.clients.map((client) => client.end()));
    await this.#server?.end();
  }
}
