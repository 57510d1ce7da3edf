import { type BalancedPeer, type Client, Engine, type EngineOptions, type Peer } from "cinnabar";
import type { MemPort } from "../../../src/fabric/mem-port.ts";
import type { Books } from "./books.ts";
import { Flow, type Flows } from "./flows.ts";
import type { Schedule } from "./schedule.ts";
import { type Life, Work, workOf } from "./service.ts";

/** Where an engine's calls go. */
export interface Source {
  readonly name: string;
  readonly target: Peer | BalancedPeer;
  readonly client: Client<typeof Work>;
  readonly flow: Client<typeof Flow>;
}

/** One process: an engine and its port, until it ends one way or another. */
export class Actor {
  readonly name: string;
  readonly engine: Engine;
  readonly life: Life & { lives: boolean };
  readonly sources: Source[] = [];
  /** Its process is gone: nothing it did counts as orderly. */
  crashed = false;
  ended: Promise<unknown> | undefined;
  readonly #schedule: Schedule;
  /** Every port it ever had: the engine forgets those it has closed. */
  readonly #seen = new Set<MemPort>();

  constructor(schedule: Schedule, name: string, engine: Engine, life: Life & { lives: boolean }) {
    this.#schedule = schedule;
    this.name = name;
    this.engine = engine;
    this.life = life;
  }

  get ports(): MemPort[] {
    this.look();
    return [...this.#seen];
  }

  /** Remembers the ports that its engine has now. */
  look(): void {
    for (const { url } of this.engine.stats().ports) {
      const port = this.#schedule.fabric.ports.get(url.slice("mem://".length));
      if (port !== undefined) this.#seen.add(port);
    }
  }

  /** Tries to connect, to one server or to several as one. */
  connect(urls: readonly string[], waits: boolean): void {
    const schedule = this.#schedule;
    const what = `${this.name} connects to ${urls.join(" and ")}${waits ? ", patiently" : ""}`;
    schedule.note(() => what);
    const reconnect = {
      whileLost: waits ? ("wait" as const) : ("fail" as const),
      baseDelayMs: 5,
      maxDelayMs: 40,
    };
    const options = { timeoutMs: 400, reconnect };
    const connecting: Promise<Peer | BalancedPeer> =
      urls.length === 1
        ? this.engine.connect(urls[0] as string, options)
        : this.engine.connect(urls, options);
    connecting.then(
      (target) => {
        schedule.note(() => `${what}: done`);
        const client = target.client(Work, { retry: false });
        const flow = target.client(Flow);
        this.sources.push({ name: urls.join("+"), target, client, flow });
      },
      (error: Error) => schedule.note(() => `${what}: ${error.message}`),
    );
  }

  close(): void {
    this.#schedule.note(() => `${this.name} closes`);
    this.look();
    this.ended ??= this.engine.close();
  }

  drain(graceMs: number): void {
    this.#schedule.note(() => `${this.name} drains`);
    this.look();
    this.ended ??= this.engine.drain({ graceMs });
  }

  /** As a process that is killed: not a word leaves it any more. */
  crash(): void {
    this.#schedule.note(() => `${this.name} crashes`);
    this.crashed = true;
    this.life.lives = false;
    for (const port of this.ports) this.#schedule.fabric.kill(port);
    this.ended = this.engine.close();
  }
}

export async function openActor(
  schedule: Schedule,
  books: Books,
  flows: Flows,
  name: string,
  serves: boolean,
  limits: EngineOptions["limits"] = {},
): Promise<Actor> {
  const life = { number: ++books.lives, lives: true };
  const engine = await Engine.open({
    ...(serves ? { listen: `mem://${name}`, serve: [workOf(schedule, books, life), flows.serve(life)] } : {}),
    heartbeatMs: schedule.pick([100, 200, 400]),
    connectTimeoutMs: 400,
    onHandlerError: () => {},
    limits,
  });
  schedule.note(() => `${name} opens, life ${life.number}`);
  return new Actor(schedule, name, engine, life);
}
