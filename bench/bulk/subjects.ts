import { Child } from "../suite/child.ts";
import type { BulkParty, Driver } from "./party.ts";

/** A way in which a subject moves bytes. */
export interface Way {
  /** As the driver knows it. */
  readonly name: string;
  /**
   * As figures end that are its own, before the unit: `get` in `shm.bulk.16MiB.get_gbps`; empty where there is but one
   * worth comparing with.
   */
  readonly key: string;
  /** One that others are compared with, or that is; the others only show what a choice costs. */
  readonly isMain: boolean;
}

/** One way to get bytes from memory to memory: its processes, and how it is asked to move them. */
export interface Subject {
  readonly key: string;
  readonly title: string;
  /** Given to the modules: a transport, or the URL at which Cinnabar's server listens. */
  readonly transport: string;
  /** Modules in parties/: where it listens first, then who goes there; or one that needs no other. */
  readonly parties: readonly [string, string?];
  /** Which of the two has the clock. */
  readonly driver: 0 | 1;
  readonly ways: readonly Way[];
  /** Whether the ratios of `--quick` need it. */
  readonly isInQuick: boolean;
}

const main = (name: string, key: string): Way => ({ name, key, isMain: true });
const other = (name: string, key: string): Way => ({ name, key, isMain: false });

const cinnabar = (key: string, url: string, isInQuick: boolean): Subject => ({
  key,
  title: `Cinnabar ${key}`,
  transport: url,
  parties: key === "mem" ? ["cinnabar-client"] : ["cinnabar-server", "cinnabar-client"],
  driver: key === "mem" ? 0 : 1,
  ways: [
    main("get", "get"),
    main("put", "put"),
    other("get by call", "get_by_call"),
    other("put by call", "put_by_call"),
  ],
  isInQuick,
});

const net = (transport: string): Subject => ({
  key: `net-${transport}`,
  title: `net ${transport}`,
  transport,
  parties: ["net-sender", "net-receiver"],
  driver: 0,
  ways: [main("in place", ""), other("concat", "concat"), other("count", "count")],
  isInQuick: true,
});

const grpc = (transport: string): Subject => ({
  key: `grpc-${transport}`,
  title: `grpc-js ${transport}`,
  transport,
  parties: ["grpc-server", "grpc-client"],
  driver: 1,
  ways: [main("stream", "")],
  isInQuick: true,
});

/** In the order in which each round measures them: ours and theirs in turn. */
export function subjects(verbsHost?: string): readonly Subject[] {
  return [
    cinnabar("shm", `shm://cinnabar-bench-bulk-${process.pid}`, true),
    net("unix"),
    grpc("unix"),
    cinnabar("tcp", "tcp://127.0.0.1:0", true),
    net("tcp"),
    cinnabar("net", "net://127.0.0.1:0", true),
    grpc("tcp"),
    ...(verbsHost === undefined
      ? []
      : [
          cinnabar("verbs", `verbs://${verbsHost}:0`, false),
          cinnabar("tcp-link", `tcp://${verbsHost}:0`, false),
        ]),
    cinnabar("mem", "mem://bench-bulk", false),
    {
      key: "message-port",
      title: "MessagePort",
      transport: "",
      parties: ["worker"],
      driver: 0,
      ways: [main("postMessage", "")],
      isInQuick: false,
    },
    {
      key: "memory",
      title: "memory to memory",
      transport: "",
      parties: ["memory-copy"],
      driver: 0,
      ways: [main("set", "set"), other("copy", "copy")],
      isInQuick: false,
    },
  ];
}

/** A subject at work. */
export class Running<D extends Driver = Driver> {
  readonly subject: Subject;
  readonly driver: Child<D>;
  readonly #all: readonly Child<BulkParty>[];

  private constructor(subject: Subject, all: readonly Child<BulkParty>[]) {
    this.subject = subject;
    this.#all = all;
    this.driver = all[subject.driver] as Child<BulkParty> as unknown as Child<D>;
  }

  static async start<D extends Driver>(subject: Subject): Promise<Running<D>> {
    const [first, second] = subject.parties;
    const all = [await start(subject, first, "")];
    try {
      if (second !== undefined) all.push(await start(subject, second, (await all[0]?.ask("address")) ?? ""));
    } catch (error) {
      await all[0]?.end();
      throw error;
    }
    return new Running(subject, all);
  }

  /** One more of the parties that go there, as a subject at work that ends without the first party. */
  async joined(): Promise<Running<D>> {
    const [there] = this.#all;
    const [, module] = this.subject.parties;
    if (there === undefined || module === undefined) throw new Error("nobody goes there");
    return new Running({ ...this.subject, driver: 0 }, [
      await start(this.subject, module, await there.ask("address")),
    ]);
  }

  async prepare(bytes: number, lanes: number): Promise<void> {
    await Promise.all(this.#all.map((party) => party.ask("prepare", bytes, lanes)));
  }

  /** Processor time that all parties have used since they started. */
  async cpuUs(): Promise<number> {
    const each = await Promise.all(this.#all.map((party) => party.ask("cpuUs")));
    return each.reduce((sum, us) => sum + us, 0);
  }

  /** The party that went to the other first, so that nobody sees a lost peer. */
  async end(): Promise<void> {
    for (const party of [...this.#all].reverse()) await party.end();
  }
}

function start(subject: Subject, module: string, address: string): Promise<Child<BulkParty>> {
  return Child.start<BulkParty>(
    `${subject.title}, ${module}`,
    new URL(`./parties/${module}.js`, import.meta.url),
    [subject.transport, address],
  );
}
