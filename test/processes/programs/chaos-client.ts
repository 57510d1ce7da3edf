// Calls servers that come and go, until it is told to stop, and holds every answer against what it asked for.
import { appendFileSync } from "node:fs";
import { type BalancedPeer, type Client, Engine, type Peer, RpcError } from "cinnabar";
import { answerTo, Chaos, patternOf, turned } from "./chaos.ts";
import { engineCommands, obey, settings, tell } from "./commands.ts";

interface ChaosSettings {
  readonly name: string;
  readonly urls: readonly string[];
  /** Where the tokens are written of calls whose error said that they were not executed. */
  readonly journal: string;
}

/** What a call may fail with while servers come and go; anything else is a fault of ours. */
const expectable = ["unavailable", "deadline_exceeded", "aborted", "cancelled", "resource_exhausted"];

/** What a client has seen. */
export interface ChaosReport {
  started: number;
  succeeded: number;
  failed: Record<string, number>;
  /**
   * Answers that were not right, failures that nothing here explains, and memory that changed after it had been given
   * back.
   */
  wrong: string[];
  /** How long a call took beyond its deadline, at most. */
  mostLateMs: number;
  longestMs: number;
  bytes: number;
}

const { name, urls, journal } = settings<ChaosSettings>();
const heartbeatMs = 400;
const timeoutMs = 3_000;
const kibi = 1024;
const engine = await Engine.open({ heartbeatMs });
const report: ChaosReport = {
  started: 0,
  succeeded: 0,
  failed: {},
  wrong: [],
  mostLateMs: 0,
  longestMs: 0,
  bytes: 0,
};
/** Nothing is killed before all are connected; but eight processes start at once, on a machine that may do other work. */
async function patiently<T>(connect: () => Promise<T>): Promise<T> {
  const untilMs = performance.now() + 60_000;
  for (;;) {
    try {
      return await connect();
    } catch (error) {
      if (performance.now() > untilMs) throw error;
    }
  }
}
const balanced = await patiently(() =>
  engine.connect(urls, { timeoutMs: 5_000, reconnect: { whileLost: "wait" } }),
);
const peers: Peer[] = [];
for (const [index, url] of urls.entries()) {
  const whileLost = index % 2 === 0 ? "wait" : "fail";
  peers.push(await patiently(() => engine.connect(url, { reconnect: { whileLost } })));
}
const clients = [balanced, balanced, ...peers].map((target: Peer | BalancedPeer) =>
  target.client(Chaos, { timeoutMs }),
);
const pick = <T>(items: readonly T[]): T => items[Math.floor(Math.random() * items.length)] as T;
const between = (low: number, high: number): number => low + Math.floor(Math.random() * (high - low));

/** Throws what is wrong with an answer. */
function check(isRight: boolean, what: string): void {
  if (!isRight) throw new Error(what);
}

/** Memory that nobody has any more must stay as it is, for as long as a late writer might take. */
function watch(memory: Buffer, token: string): void {
  memory.fill(0xee);
  setTimeout(() => {
    if (!memory.every((byte) => byte === 0xee))
      report.wrong.push(`${token}: memory was written after it was given back`);
  }, 2_000).unref();
}

const retry = { retry: { attempts: 8, baseDelayMs: 20, maxDelayMs: 300 }, attemptTimeoutMs: 500 };

const operations: Record<string, (client: Client<typeof Chaos>, token: string) => Promise<void>> = {
  async small(client, token) {
    check((await client.small({ token })) === answerTo(token), "a wrong answer");
  },
  async given(client, token) {
    const signal = AbortSignal.timeout(between(1, 20));
    check((await client.small({ token }, { signal })) === answerTo(token), "a wrong answer");
  },
  async long(client, token) {
    const body = patternOf(token, between(20 * kibi, 400 * kibi));
    const answer = await client.long({ token, body }, Math.random() < 0.5 ? retry : {});
    check(turned(body).equals(answer), "a wrong body");
    report.bytes += 2 * body.byteLength;
  },
  async fill(client, token) {
    const memory = Buffer.alloc(between(1, 1024 * kibi));
    const into = engine.expose(memory, { access: "write" });
    try {
      check((await client.fill({ token, into })) === answerTo(token), "a wrong answer");
      check(memory.equals(patternOf(token, memory.byteLength)), "wrong bytes in the region");
      report.bytes += memory.byteLength;
    } finally {
      void into[Symbol.asyncDispose]().then(() => watch(memory, token));
    }
  },
  async take(client, token) {
    const memory = patternOf(token, between(1, 1024 * kibi));
    using from = engine.expose(memory, { access: "read" });
    check(await client.take({ token, from }, Math.random() < 0.5 ? retry : {}), "wrong bytes arrived");
    report.bytes += memory.byteLength;
  },
  async book(client, token) {
    check((await client.book({ token }, retry)) === 1, "executed more than once");
  },
};
const names = ["small", "small", "small", "given", "long", "fill", "take", "book", "book"] as const;

let stopped = false;
let tokens = 0;

async function work(): Promise<void> {
  while (!stopped) {
    const operation = pick(names);
    const token = `${name}-${++tokens}-${operation}`;
    const begunMs = performance.now();
    report.started++;
    try {
      await (operations[operation] as (typeof operations)["small"])(
        pick(clients) as Client<typeof Chaos>,
        token,
      );
      report.succeeded++;
    } catch (error) {
      onFailure(error, token);
    }
    const tookMs = performance.now() - begunMs;
    report.longestMs = Math.max(report.longestMs, tookMs);
    report.mostLateMs = Math.max(report.mostLateMs, tookMs - timeoutMs);
    // A peer that is down answers at once.
    await new Promise((resolve) => setTimeout(resolve, between(1, 6)));
  }
}

function onFailure(error: unknown, token: string): void {
  if (!(error instanceof RpcError)) {
    report.wrong.push(`${token}: ${String(error)}`);
    return;
  }
  if (!expectable.includes(error.code))
    report.wrong.push(`${token}: ${error.message} ${JSON.stringify(error.fabric ?? {})}`);
  report.failed[error.code] = (report.failed[error.code] ?? 0) + 1;
  if (error.notExecuted) appendFileSync(journal, `${token}\n`);
}

const workers = Array.from({ length: 8 }, work);

obey({
  ...engineCommands(engine),
  /** Ends the work; the report of all of it. */
  async stop(): Promise<ChaosReport> {
    stopped = true;
    await Promise.all(workers);
    return report;
  },
  /** Lets go of all servers. */
  leave() {
    balanced.close();
    for (const peer of peers) peer.close();
  },
});
tell("working");
