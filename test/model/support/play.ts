import { channel } from "node:diagnostics_channel";
import type { CallOptions } from "cinnabar";
import type { EngineStats } from "cinnabar/inspect";
import { exact } from "../../matrix/exact-limits.ts";
import {
  Books,
  type CallRecord,
  fillPattern,
  type GrantedMemory,
  type Promised,
  requested,
  textOf,
} from "./books.ts";
import { type Actor, openActor, type Source } from "./cast.ts";
import { layout } from "./fabric.ts";
import { Flows } from "./flows.ts";
import { useFabric } from "./ports.ts";
import { Schedule } from "./schedule.ts";
import { checks } from "./service.ts";
import type { StateWatch } from "./states.ts";

/** How much goes wrong. */
export type Weather = "calm" | "rough" | "lossy";

/** What came of one schedule. */
export interface Outcome {
  readonly violations: readonly string[];
  readonly log: readonly string[];
  readonly calls: number;
  readonly succeeded: number;
  readonly executions: number;
  readonly turns: number;
}

const mostSteps = 4000;

/** One schedule from its first engine to its last: what anybody does in it, and what must be so in the end. */
export class Play {
  readonly #schedule: Schedule;
  readonly #books = new Books();
  readonly #weather: Weather;
  readonly #actors: Actor[] = [];
  readonly #clients: string[];
  readonly #servers: string[];
  readonly #states: StateWatch;
  readonly #flows: Flows;
  /** The share of checks that take time. */
  #slowChecks: number;
  #callsLeft: number;
  #eventsLeft: number;
  #succeeded = 0;

  constructor(seed: number, states: StateWatch, logs = false) {
    this.#states = states;
    const schedule = new Schedule(seed, logs);
    this.#schedule = schedule;
    this.#flows = new Flows(schedule, this.#books);
    this.#weather = schedule.pick(["calm", "rough", "rough", "lossy"] as const);
    this.#clients = schedule.chance(0.4) ? ["client-1", "client-2"] : ["client-1"];
    this.#servers = schedule.chance(0.4) ? ["server-1", "server-2"] : ["server-1"];
    this.#slowChecks = schedule.chance(0.2) ? 0.2 : 0;
    this.#callsLeft = schedule.between(1, 14);
    this.#eventsLeft = this.#weather === "calm" ? 0 : schedule.between(1, 6);
  }

  async run(): Promise<Outcome> {
    const { loop, random, log, seed } = this.#schedule;
    const books = this.#books;
    useFabric(this.#schedule.fabric);
    checks.take = () => this.#check();
    loop.install(random);
    const { stackTraceLimit } = Error;
    // Errors are most of what happens here, and nobody reads where they were made.
    if (!loop.traces) Error.stackTraceLimit = 0;
    const onEscaped = (error: unknown) =>
      books.violated(`an exception escaped: ${(error as Error)?.stack ?? error}`);
    process.on("unhandledRejection", onEscaped);
    const onMalformed = (message: unknown) =>
      this.#schedule.note(() => `malformed: ${JSON.stringify(message)}`);
    channel("cinnabar:malformed").subscribe(onMalformed);
    try {
      await this.#perform();
    } catch (error) {
      books.violated(`an exception escaped: ${(error as Error).stack}`);
    } finally {
      process.off("unhandledRejection", onEscaped);
      channel("cinnabar:malformed").unsubscribe(onMalformed);
      loop.uninstall();
      Error.stackTraceLimit = stackTraceLimit;
    }
    const violations = [
      ...books.violations,
      ...this.#schedule.fabric.violations,
      ...this.#states.takeViolations(),
    ];
    const { length: calls } = books.calls;
    return {
      violations: violations.map((violation) => `seed ${seed}, ${this.#weather}: ${violation}`),
      log,
      calls,
      succeeded: this.#succeeded,
      executions: books.executions.length,
      turns: this.#schedule.turns,
    };
  }

  /** A contract's check, at once or in its own time. */
  #check(): true | Promise<true> {
    const schedule = this.#schedule;
    if (!schedule.chance(this.#slowChecks)) return true;
    return new Promise((resolve) => schedule.loop.timer(schedule.between(1, 10), () => resolve(true), true));
  }

  async #perform(): Promise<void> {
    const schedule = this.#schedule;
    schedule.note(() => `${this.#weather}, ${JSON.stringify(schedule.fabric.nature)}`);
    for (const name of this.#servers) await this.#open(name);
    for (const name of this.#clients) {
      const client = await this.#open(name);
      client.connect(this.#someServers(), schedule.chance(0.4));
    }
    // Mostly somebody is connected before anything happens.
    if (schedule.chance(0.8)) await schedule.calm(50, () => this.#sources().length > 0);
    this.#worsen();
    for (let steps = 0; steps < mostSteps && (this.#callsLeft > 0 || this.#eventsLeft > 0); steps++) {
      if (schedule.chance(0.06)) await this.#act();
      await schedule.step();
      this.#states.sample();
    }
    for (let steps = schedule.below(400); steps > 0 && this.#books.open.length > 0; steps--) {
      if (schedule.chance(0.05)) this.#abort();
      await schedule.step();
    }
    schedule.faults = { lost: 0, repeated: 0, overtaken: 0 };
    schedule.failing = 0;
    await this.#finish();
  }

  #worsen(): void {
    const schedule = this.#schedule;
    if (this.#weather !== "calm" && schedule.chance(0.3)) schedule.failing = 0.05;
    if (this.#weather !== "lossy") return;
    const share = () => (schedule.chance(0.5) ? schedule.pick([0.02, 0.1, 0.3]) : 0);
    schedule.faults = { lost: share(), repeated: share(), overtaken: share() };
  }

  async #open(name: string): Promise<Actor> {
    const schedule = this.#schedule;
    const serves = this.#servers.includes(name);
    const limits = {
      maxReplayMs: schedule.pick([50, 2000]),
      ...(schedule.chance(0.2) ? { maxRequests: schedule.between(1, 4) } : {}),
      ...(schedule.chance(0.2) ? { maxReplayCalls: schedule.between(1, 4) } : {}),
      ...(schedule.chance(0.1) ? { maxOfferBytes: 12_000 } : {}),
      ...(schedule.chance(0.1) ? { maxPullBytes: 12_000 } : {}),
    };
    const actor = await openActor(schedule, this.#books, this.#flows, name, serves, exact(limits));
    this.#actors.push(actor);
    // A server that asks another for what it is asked.
    const other = this.#servers.find((server) => server !== name);
    if (serves && other !== undefined && name === this.#servers[0]) {
      actor.connect([`mem://${other}`], false);
      actor.life.nested = async () => {
        const source = actor.sources.find(({ target }) => !("closed" in target && target.closed));
        if (source === undefined || !actor.life.lives || actor.ended !== undefined) return;
        await this.#call(source, actor, true);
      };
    }
    return actor;
  }

  #someServers(): string[] {
    const urls = this.#servers.map((name) => `mem://${name}`);
    return this.#schedule.chance(0.5) ? urls : [this.#schedule.pick(urls)];
  }

  #living(names: readonly string[]): Actor[] {
    return this.#actors.filter(({ name, ended }) => ended === undefined && names.includes(name));
  }

  #sources(): { readonly actor: Actor; readonly source: Source }[] {
    return this.#living(this.#clients).flatMap((actor) => actor.sources.map((source) => ({ actor, source })));
  }

  // ---- what people do ---------------------------------------------------------------------------------------------

  async #act(): Promise<void> {
    const schedule = this.#schedule;
    if (this.#eventsLeft > 0 && schedule.chance(0.25)) return this.#happen();
    const drawn = schedule.below(10);
    if (drawn < 2) return this.#abort();
    if (drawn === 2) return this.#revoke();
    if (this.#callsLeft <= 0) return;
    const sources = this.#sources();
    if (sources.length > 0) {
      this.#callsLeft--;
      const { actor, source } = schedule.pick(sources);
      if (schedule.chance(0.3)) this.#flows.make(source.flow, actor.name, actor.life);
      else this.#call(source, actor, false).catch(() => {});
    } else if (schedule.chance(0.3)) {
      const [client] = this.#living(this.#clients);
      if (client === undefined) this.#callsLeft = 0;
      else client.connect(this.#someServers(), schedule.chance(0.4));
      // Not for ever, where nobody can be reached.
      this.#callsLeft--;
    }
  }

  #call(source: Source, actor: Actor, nested: boolean): Promise<unknown> {
    const schedule = this.#schedule;
    const books = this.#books;
    const number = books.calls.length;
    const promised = schedule.pick(["plain", "idempotent", "replayed"] as const);
    const textLength = schedule.pick([40, 40, 40, 300, 3000, 9000]);
    const timeoutMs = schedule.between(5, 300);
    const policy: CallOptions = nested || schedule.chance(0.4) ? {} : this.#policy();
    const kind = nested || schedule.chance(0.6) ? "" : schedule.pick(["Fill", "Take"] as const);
    const call: CallRecord = {
      number,
      promised,
      textLength,
      startedMs: schedule.loop.nowMs,
      timeoutMs,
      retries: Object.keys(policy).length > 0,
      controller: new AbortController(),
      lent: kind === "" ? undefined : this.#lend(actor, number, kind === "Fill" ? "write" : "read"),
      settled: 0,
    };
    books.calls.push(call);
    schedule.note(() => {
      const how = JSON.stringify({ timeoutMs, textLength, ...policy, lent: call.lent?.bytes.length });
      return `${actor.name} makes call ${number} of ${promised}${kind} by ${source.name} ${how}`;
    });
    // Once in a while it is one that the contract does not allow, or that nobody wants any more.
    const isWrong = schedule.chance(0.02);
    if (schedule.chance(0.02)) call.controller.abort(new Error("never wanted"));
    const input = { number: isWrong ? number + 0.5 : number, text: textOf(number, requested, textLength) };
    const options: CallOptions = { ...policy, timeoutMs, signal: call.controller.signal };
    const made = this.#make(source, `${promised}${kind}` as const, input, call.lent, options);
    made.then(
      (value) => {
        schedule.note(() => `call ${number} has the answer of execution ${value.execution}`);
        this.#succeeded++;
        books.onValue(call, value);
      },
      (error: Error) => {
        schedule.note(() => `call ${number} fails: ${error.message}`);
        books.onError(call, error);
      },
    );
    return made;
  }

  /** A call whose input is still being checked when this returns. */
  #callChecking(source: Source, actor: Actor): void {
    const share = this.#slowChecks;
    this.#slowChecks = 1;
    this.#call(source, actor, false).catch(() => {});
    this.#slowChecks = share;
  }

  #make(
    { client }: Source,
    method: `${Promised}${"" | "Fill" | "Take"}`,
    input: { readonly number: number; readonly text: string },
    lent: GrantedMemory | undefined,
    options: CallOptions,
  ) {
    // The types of nine methods with three inputs: what is lent fits the method's name.
    const call = client[method] as (
      input: object,
      options: CallOptions,
    ) => Promise<{ number: number; execution: number; text: string }>;
    const memory =
      lent === undefined ? {} : lent.access === "write" ? { into: lent.region } : { from: lent.region };
    return call({ ...input, ...memory }, options);
  }

  #policy(): CallOptions {
    const schedule = this.#schedule;
    return {
      ...(schedule.chance(0.5) ? { attemptTimeoutMs: schedule.between(4, 60) } : {}),
      ...(schedule.chance(0.8)
        ? { retry: { attempts: schedule.between(2, 5), baseDelayMs: schedule.between(1, 8), maxDelayMs: 20 } }
        : {}),
    };
  }

  #lend(actor: Actor, number: number, access: "read" | "write"): GrantedMemory | undefined {
    const bytes = new Uint8Array(this.#schedule.pick([1, 100, 5000, 20_000]));
    if (access === "read") fillPattern(bytes, number, requested);
    const middle = bytes.length >> 1;
    const views =
      this.#schedule.chance(0.3) && middle > 0 ? [bytes.subarray(0, middle), bytes.subarray(middle)] : bytes;
    const region = actor.engine.expose(views, { access });
    return { region, bytes, access };
  }

  #abort(): void {
    const open = this.#books.open.filter(({ controller }) => !controller.signal.aborted);
    if (open.length === 0) return;
    const call = this.#schedule.pick(open);
    this.#schedule.note(() => `call ${call.number} is given up`);
    call.controller.abort(new Error("no more"));
  }

  #revoke(): void {
    const open = this.#books.open.filter(({ lent }) => lent !== undefined);
    if (open.length === 0) return;
    const { number, lent } = this.#schedule.pick(open);
    const disposes = this.#schedule.chance(0.3);
    this.#schedule.note(() => `the memory of call ${number} is ${disposes ? "disposed" : "revoked"}`);
    if (disposes) lent?.region.dispose();
    else void lent?.region.revoke();
  }

  /** What befalls engines and the ways between them. */
  async #happen(): Promise<void> {
    const schedule = this.#schedule;
    this.#eventsLeft--;
    const all = this.#living([...this.#clients, ...this.#servers]);
    const down = this.#servers.filter((name) => this.#living([name]).length === 0);
    if (down.length > 0 && schedule.chance(0.7)) {
      const name = schedule.pick(down);
      if (!schedule.fabric.ports.has(name)) await this.#open(name);
      return;
    }
    if (all.length === 0) return;
    const actor = schedule.pick(all);
    switch (schedule.below(8)) {
      case 0:
      case 1:
        return this.#breakLink();
      case 2:
        return actor.crash();
      case 3:
        return actor.close();
      case 4:
        return actor.drain(schedule.between(0, 100));
      case 5: {
        const source = actor.sources.shift();
        if (source !== undefined && schedule.chance(0.5)) this.#callChecking(source, actor);
        schedule.note(() => `${actor.name} closes its way to ${source?.name}`);
        source?.target.close();
        return;
      }
      case 6: {
        const ms = schedule.pick([30, 150, 600]);
        schedule.note(() => `everything stands still for ${ms} ms`);
        return schedule.pass(ms, true);
      }
      default: {
        const client = this.#living(this.#clients)[0];
        client?.connect(this.#someServers(), schedule.chance(0.4));
      }
    }
  }

  #breakLink(): void {
    const schedule = this.#schedule;
    const ports = [...schedule.fabric.ports.values()];
    const linked = ports.flatMap((a) => schedule.fabric.linkedTo(a).map((b) => [a, b] as const));
    if (linked.length === 0) return;
    const [a, b] = schedule.pick(linked);
    schedule.note(() => `the connection between ${a.name} and ${b.name} breaks`);
    schedule.fabric.breakLink(a, b);
  }

  // ---- the end ----------------------------------------------------------------------------------------------------

  async #finish(): Promise<void> {
    const schedule = this.#schedule;
    const books = this.#books;
    const everything = () => books.open.length + this.#flows.open.size === 0;
    // The longest call and the latest look at a clock.
    if (!(await schedule.calm(1500, everything)))
      books.violated(
        `calls ${books.open.map(({ number }) => number)}, streams ${[...this.#flows.open]} have not ended by their deadline`,
      );
    if (this.#weather !== "lossy") await this.#rest();
    for (const actor of this.#actors) if (actor.ended === undefined) actor.close();
    const closing = new Set(this.#actors);
    for (const actor of this.#actors) actor.ended?.then(() => closing.delete(actor));
    if (!(await schedule.calm(2000, () => closing.size === 0)))
      for (const { name, life } of closing) books.violated(`${name}, life ${life.number}, has not closed`);
    schedule.loop.dropOwn();
    // Last turns that do nothing.
    await schedule.calm(50, () => schedule.loop.turns.length === 0 && schedule.fabric.steps.length === 0);
    for (const actor of this.#actors) this.#checkClosed(actor);
    for (const { where = "somewhere" } of schedule.loop.timers)
      books.violated(`a timer is armed after everything has closed: ${where}`);
    if (schedule.loop.turns.length > 0)
      books.violated("a turn of the loop is planned after everything has closed");
    for (const { number, lent } of books.calls)
      if (lent !== undefined && lent.region.grants > 0)
        books.violated(`the memory of call ${number} is still lent`);
    books.checkExecutions();
    books.checkMemory();
  }

  /** Where the fabric kept its contract, engines come to rest by themselves. */
  async #rest(): Promise<void> {
    const schedule = this.#schedule;
    const living = this.#actors.filter(({ ended }) => ended === undefined);
    const held = () => living.flatMap((actor) => this.#held(actor));
    // Built-in questions last longest: ten seconds.
    if (await schedule.calm(12_000, () => held().length === 0)) return;
    for (const what of held()) this.#books.violated(`at rest ${what}`);
  }

  #held({ name, engine, ports }: Actor): string[] {
    const stats = engine.stats();
    const held: string[] = [];
    const expect = (what: string, value: number, wanted = 0) => {
      if (value !== wanted) held.push(`${name} has ${what} ${value}, not ${wanted}`);
    };
    const { deadlines, queuedBytes, offeredBytes, pullingBytes, quarantinedBytes } = stats;
    const numbers = { ...openCallsOf(stats), deadlines, queuedBytes, pullingBytes };
    for (const [what, value] of Object.entries(numbers)) expect(what, value);
    // Where nobody tells of deaths, what was lent to a peer that fell silent is held back.
    const isSure = this.#schedule.fabric.nature.revokesKeys;
    if (isSure) expect("quarantinedBytes", quarantinedBytes);
    if (quarantinedBytes === 0) {
      expect("offeredBytes", offeredBytes);
      expect("regions", stats.regions);
      for (const { regions, registrations } of stats.ports)
        expect("registered memory", regions - registrations.idle);
      for (const { addresses } of stats.ports.slice(0, 1)) expect("addresses", addresses, stats.sessions);
    }
    for (const port of ports) {
      const { sends, transfers, freeSlots } = port.gauges();
      expect("sends", sends);
      expect("transfers", transfers);
      if (freeSlots !== layout.sendSlots) held.push(`${name} holds slots of ${port.name}`);
    }
    return [...held, ...unbalanced(name, stats)];
  }

  #checkClosed({ name, engine, ports, crashed }: Actor): void {
    const books = this.#books;
    const stats = engine.stats();
    const { sessions, deadlines, queuedBytes, offeredBytes, pullingBytes, quarantinedBytes } = stats;
    const { regions, replayCalls, replayBytes } = stats;
    const { takenBytes, freeBytes } = stats.pool;
    for (const [what, value] of Object.entries({
      sessions,
      ...openCallsOf(stats),
      deadlines,
      queuedBytes,
      offeredBytes,
      pullingBytes,
      quarantinedBytes,
      regions,
      replayCalls,
      replayBytes,
      takenBytes,
      freeBytes,
    })) {
      if (value !== 0) books.violated(`${name} has closed and still has ${what}: ${value}`);
    }
    for (const port of ports) {
      const { sends, transfers, regions: registered } = port.gauges();
      if (sends + transfers + registered > 0)
        books.violated(
          `${name} has closed and its port has ${sends} sends, ${transfers} transfers, ${registered} regions`,
        );
      if (!port.closed) books.violated(`${name} has closed, its port has not`);
    }
    for (const what of unbalanced(name, stats)) books.violated(what);
    if (this.#weather !== "lossy" && !crashed && stats.counters.malformed > 0)
      books.violated(`${name} was sent what is malformed`);
  }
}

/** The gauges of calls and of the library's own requests, by name. */
function openCallsOf({ calls, controlRequests }: EngineStats): Record<string, number> {
  return {
    "calls out": calls.out,
    "calls waiting": calls.waiting,
    "calls in": calls.in,
    "control requests out": controlRequests.out,
    "control requests waiting": controlRequests.waiting,
    "control requests in": controlRequests.in,
  };
}

/** What has been counted of calls must add up: each ends once. */
function unbalanced(name: string, { counters }: EngineStats): string[] {
  const { callsStarted, callsSucceeded, callsFailed } = counters;
  const { requestsStarted, requestsSucceeded, requestsFailed } = counters;
  const found: string[] = [];
  if (callsStarted !== callsSucceeded + callsFailed)
    found.push(`${name} has made ${callsStarted} calls: ${callsSucceeded} succeeded, ${callsFailed} failed`);
  if (requestsStarted !== requestsSucceeded + requestsFailed)
    found.push(
      `${name} was asked ${requestsStarted} times: ${requestsSucceeded} succeeded, ${requestsFailed} failed`,
    );
  return found;
}
