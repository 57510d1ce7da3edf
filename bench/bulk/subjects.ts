import type { Driver } from "./party.ts";
import { RemoteParty } from "./remote-party.ts";

/** One way to get bytes from memory to memory: its processes, and how it is asked to move them. */
export interface Subject {
  readonly name: string;
  readonly transport: string;
  /** Modules in parties/: where it listens first, then who goes there; or one that needs no other. */
  readonly parties: readonly [string, string?];
  /** Which of the two has the clock. */
  readonly driver: 0 | 1;
  readonly ways: readonly string[];
}

const cinnabar = (transport: string): Subject => ({
  name: `cinnabar ${transport}`,
  transport,
  parties: ["cinnabar-server", "cinnabar-client"],
  driver: 1,
  ways: ["get", "put", "get by call", "put by call"],
});

const net = (transport: string): Subject => ({
  name: `net ${transport}`,
  transport,
  parties: ["net-sender", "net-receiver"],
  driver: 0,
  ways: ["in place", "concat", "count"],
});

const grpc = (transport: string): Subject => ({
  name: `grpc-js ${transport}`,
  transport,
  parties: ["grpc-server", "grpc-client"],
  driver: 1,
  ways: ["stream"],
});

/** In the order in which each round measures them: ours and theirs in turn. */
export const subjects: readonly Subject[] = [
  { name: "memory", transport: "", parties: ["memory-copy"], driver: 0, ways: ["set", "copy"] },
  cinnabar("shm"),
  net("unix"),
  { name: "worker", transport: "", parties: ["worker"], driver: 0, ways: ["postMessage"] },
  grpc("unix"),
  cinnabar("tcp"),
  net("tcp"),
  grpc("tcp"),
];

/** What is set beside what, by row names: those a user would choose between. */
export const comparisons: readonly { readonly ours: string; readonly theirs: readonly string[] }[] = [
  ...["get", "put"].map((op) => ({
    ours: `cinnabar shm ${op}`,
    theirs: [
      "memory set",
      "net unix in place",
      "net tcp in place",
      "worker postMessage",
      "grpc-js unix stream",
    ],
  })),
  ...["get", "put"].map((op) => ({
    ours: `cinnabar tcp ${op}`,
    theirs: ["net tcp in place", "grpc-js tcp stream"],
  })),
];

/** A subject at work. */
export class Running<D extends Driver = Driver> {
  readonly subject: Subject;
  readonly driver: RemoteParty<D>;
  readonly #all: readonly RemoteParty[];

  private constructor(subject: Subject, all: readonly RemoteParty[]) {
    this.subject = subject;
    this.#all = all;
    this.driver = all[subject.driver] as RemoteParty<D>;
  }

  static async start<D extends Driver>(subject: Subject): Promise<Running<D>> {
    const [first, second] = subject.parties;
    const { party, address } = await RemoteParty.start(first, subject.transport);
    if (second === undefined) return new Running(subject, [party]);
    try {
      const { party: other } = await RemoteParty.start(second, subject.transport, address);
      return new Running(subject, [party, other]);
    } catch (error) {
      await party.end();
      throw error;
    }
  }

  async prepare(bytes: number): Promise<void> {
    await Promise.all(this.#all.map((party) => party.ask("prepare", bytes)));
  }

  /** The party that went to the other first, so that nobody sees a lost peer. */
  async end(): Promise<void> {
    for (const party of [...this.#all].reverse()) await party.end();
  }
}
