import { readFileSync } from "node:fs";
import { DeadlineWheel, type Timed } from "../../../src/base/time/deadline-wheel.ts";
import { IncomingCall } from "../../../src/call/incoming-call.ts";
import { OutgoingCall } from "../../../src/call/outgoing-call.ts";
import { Attempt } from "../../../src/client/attempted-call.ts";
import { RetriedCall } from "../../../src/client/retried-call.ts";
import { StreamCall } from "../../../src/client/stream-call.ts";
import { PeerConnection } from "../../../src/connect/peer-connection.ts";
import { OutgoingCalls } from "../../../src/session/calls/outgoing-calls.ts";
import { Session } from "../../../src/session/connection/session.ts";

const page = new URL("../../../docs/design/states.md", import.meta.url);

/** The machines whose changes are seen as they happen. Of a peer only what it says when it is asked is known. */
const watched = ["Outgoing call", "Incoming call", "Retried call", "Stream", "Session"];
const sampled = "Peer";

type Changes = Map<string, Set<string>>;

/** What the tables of docs/design/states.md allow: for each machine, from each state, the states it may become. */
function readTables(): Map<string, Changes> {
  const machines = new Map<string, Changes>();
  for (const section of readFileSync(page, "utf8").split("\n## ").slice(1)) {
    const [title = "", ...lines] = section.split("\n");
    const rows = lines.slice(lines.findIndex((line) => line.startsWith("| From |")) + 2);
    const changes: Changes = new Map();
    for (const row of rows.filter((line) => line.startsWith("| "))) {
      const [, from = "", , to = ""] = row.split("|").map((cell) => cell.trim());
      for (const state of from.split(", ")) {
        const targets = changes.get(state) ?? new Set();
        changes.set(state, targets.add(to));
      }
    }
    machines.set(title, changes);
  }
  return machines;
}

/**
 * Whether a state can become another in one step or several: between two looks at a peer more than one thing may
 * happen.
 */
function leads(changes: Changes, from: string, to: string, been = new Set<string>()): boolean {
  for (const next of changes.get(from) ?? []) {
    if (next === to) return true;
    if (!been.has(next) && leads(changes, next, to, been.add(next))) return true;
  }
  return false;
}

/** Sees how the states of calls, sessions and peers change, and holds that against the tables in the documentation. */
export class StateWatch {
  readonly #tables = readTables();
  readonly #seen = new Set<string>();
  readonly #objects = new WeakSet<object>();
  /** Peers and what each was when it was last looked at. */
  #peers = new Map<PeerConnection, string>();
  #violations: string[] = [];
  readonly #unpatch: (() => void)[] = [];

  /** From here on every object of these kinds is watched from its first steps. */
  install(): void {
    const see = (item: object) => this.#see(item);
    this.#before(DeadlineWheel.prototype, "arm", (_, item: Timed) => see(item));
    this.#before(Attempt.prototype, "start", see);
    this.#before(OutgoingCalls.prototype, "request", (_, call: OutgoingCall) => see(call));
    for (const name of ["takeOnly", "begin"] as const) this.#before(Session.prototype, name, see);
    this.#before(PeerConnection.prototype, "session", (peer) => {
      if (!this.#peers.has(peer)) this.#peers.set(peer, "connecting");
    });
  }

  uninstall(): void {
    for (const unpatch of this.#unpatch) unpatch();
  }

  /** Looks at the peers. */
  sample(): void {
    for (const [peer, last] of this.#peers) {
      const { state } = peer;
      if (state === last) continue;
      this.#peers.set(peer, state);
      this.#change(sampled, last, state);
    }
  }

  /** What no table allows, since this was asked last. */
  takeViolations(): string[] {
    const violations = this.#violations;
    this.#violations = [];
    this.#peers = new Map();
    return violations;
  }

  /** Rows that have not happened so far, but for those that happen between two looks. */
  get unseen(): string[] {
    return watched.flatMap((machine) =>
      [...(this.#tables.get(machine) ?? [])].flatMap(([from, targets]) =>
        [...targets].map((to) => `${machine}: ${from} to ${to}`).filter((change) => !this.#seen.has(change)),
      ),
    );
  }

  #see(item: object): void {
    if (this.#objects.has(item)) return;
    this.#objects.add(item);
    if (item instanceof OutgoingCall) this.#watch("Outgoing call", item, "phase");
    else if (item instanceof IncomingCall) this.#watch("Incoming call", item, "phase");
    else if (item instanceof RetriedCall) this.#watch("Retried call", item, "phase");
    else if (item instanceof StreamCall) this.#watch("Stream", item, "phase");
    else if (item instanceof Session) this.#watch("Session", item, "state");
  }

  #watch(machine: string, item: object, property: string): void {
    let state = (item as Record<string, string>)[property] as string;
    Object.defineProperty(item, property, {
      get: () => state,
      set: (next: string) => {
        if (next !== state) this.#change(machine, state, next);
        state = next;
      },
    });
  }

  #change(machine: string, from: string, to: string): void {
    const change = `${machine}: ${from} to ${to}`;
    if (this.#seen.has(change)) return;
    const changes = this.#tables.get(machine) ?? new Map();
    const isAllowed = machine === sampled ? leads(changes, from, to) : changes.get(from)?.has(to) === true;
    if (isAllowed) this.#seen.add(change);
    else this.#violations.push(`docs/design/states.md has no such row: ${change}`);
  }

  /** Does something before each call of a method. */
  #before<T extends object, K extends keyof T>(
    prototype: T,
    name: K,
    act: (self: T, ...args: never[]) => void,
  ): void {
    const real = prototype[name] as (...args: unknown[]) => unknown;
    prototype[name] = function (this: T, ...args: unknown[]) {
      act(this, ...(args as never[]));
      return real.apply(this, args);
    } as T[K];
    this.#unpatch.push(() => {
      prototype[name] = real as T[K];
    });
  }
}
