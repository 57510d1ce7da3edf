import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { bulk, bytes, Engine, type EngineOptions, implement, service, unary } from "cinnabar";
import type { EngineStats } from "cinnabar/inspect";
import { expect, onTestFinished } from "vitest";
import { z } from "zod";
import { freshUrl } from "./fabric.ts";

export const Target = service("target.v1", {
  echo: unary({
    input: z.object({ id: z.number(), text: z.string() }),
    output: z.object({ id: z.number(), text: z.string() }),
  }),
  bytes: unary({ input: bytes(), output: bytes() }),
  fill: unary({ input: z.object({ into: bulk("write") }), output: z.number() }),
  read: unary({ input: z.object({ from: bulk("read") }), output: z.number() }),
  fail: unary({ input: z.object({ id: z.string() }), errors: { NotFound: z.object({ id: z.string() }) } }),
  wait: unary({ input: z.unknown() }),
  long: unary({ output: bytes() }),
});

/** Numbers of the methods, as the victim's welcome gives them. */
export const methodNumber = (name: keyof typeof Target.methods): number =>
  Object.keys(Target.methods).indexOf(name);

export const targets = implement(Target, {
  echo: (input) => input,
  bytes: (input) => input,
  fill: ({ into }, call) => call.put(new Uint8Array(Math.min(into.byteLength, 1 << 20)).fill(7), into),
  read: ({ from }, call) => call.get(from, new Uint8Array(Math.min(from.byteLength, 1 << 20))),
  fail: ({ id }, call) => call.fail("NotFound", { id }),
  wait: (_, call) =>
    new Promise((_resolve, reject) =>
      call.signal.addEventListener("abort", () => reject(call.signal.reason)),
    ),
  long: () => new Uint8Array(100_000),
});

/** What is zero when nobody calls. */
function held({
  calls,
  controlRequests,
  deadlines,
  queuedBytes,
  regions,
  pullingBytes,
  quarantinedBytes,
  ports,
}: EngineStats) {
  return {
    calls,
    controlRequests,
    deadlines,
    queuedBytes,
    regions,
    pullingBytes,
    quarantinedBytes,
    ports: ports.map((port) => ({
      sends: port.sends,
      transfers: port.transfers,
      regions: port.regions,
      slotsTaken: 64 - port.freeSlots,
    })),
  };
}

const nothing = { sends: 0, transfers: 0, regions: 0, slotsTaken: 0 };
const noCalls = { out: 0, waiting: 0, in: 0 };
const rest = {
  calls: noCalls,
  controlRequests: noCalls,
  deadlines: 0,
  queuedBytes: 0,
  regions: 0,
  pullingBytes: 0,
  quarantinedBytes: 0,
  ports: [nothing],
};

/** A server under attack, with an honest peer that keeps calling it and must not notice. */
export class Victim {
  readonly engine: Engine;
  readonly url: string;
  readonly faults: string[] = [];
  readonly #honest: Engine;
  readonly #echo: (id: number) => Promise<unknown>;
  #calling: Promise<number> | undefined;
  #stop = false;

  private constructor(engine: Engine, honest: Engine, echo: (id: number) => Promise<unknown>) {
    this.engine = engine;
    this.url = engine.urls[0] as string;
    this.#honest = honest;
    this.#echo = echo;
  }

  static async open(options: EngineOptions = {}): Promise<Victim> {
    const engine = await Engine.open({
      listen: freshUrl(),
      serve: [targets],
      // A forged region makes a handler fail; that is its business.
      onHandlerError: () => {},
      ...options,
    });
    const honest = await Engine.open({ limits: { maxRequests: 64 } });
    const client = (await honest.connect(engine.urls[0] as string)).client(Target, { timeoutMs: 60_000 });
    const victim = new Victim(engine, honest, async (id) =>
      expect(await client.echo({ id, text: "t" })).toEqual({ id, text: "t" }),
    );
    const listen = (message: unknown) => void victim.faults.push((message as { fault: string }).fault);
    subscribe("cinnabar:malformed", listen);
    onTestFinished(async () => {
      unsubscribe("cinnabar:malformed", listen);
      victim.#stop = true;
      await victim.#calling?.catch(() => {});
      await Promise.all([engine.close(), honest.close()]);
    });
    victim.#calling = victim.#keepCalling();
    return victim;
  }

  get counters(): EngineStats["counters"] {
    return this.engine.stats().counters;
  }

  async #keepCalling(): Promise<number> {
    let calls = 0;
    while (!this.#stop) {
      await this.#echo(calls++);
      await new Promise(setImmediate);
    }
    return calls;
  }

  /**
   * The attack is over and the attackers are gone: the honest peer has noticed nothing, and nothing is left of them.
   */
  async expectUnharmed(sessions = 1): Promise<void> {
    this.#stop = true;
    expect(await this.#calling).toBeGreaterThan(0);
    await this.#echo(-1);
    await expect.poll(() => held(this.engine.stats()), { timeout: 20_000, interval: 2 }).toEqual(rest);
    await expect.poll(() => this.engine.stats().sessions, { timeout: 20_000, interval: 2 }).toBe(sessions);
    expect(held(this.#honest.stats())).toEqual(rest);
    expect(this.#honest.stats().counters).toMatchObject({ callsFailed: 0, malformed: 0, sessionsLost: 0 });
    expect(Object.keys(Object.prototype)).toEqual([]);
  }
}
