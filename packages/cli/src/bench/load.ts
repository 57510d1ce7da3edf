import { setTimeout as pause } from "node:timers/promises";
import { Histogram, RpcError } from "cinnabar/standard";
import type { Target } from "./traffic.ts";

/** The time that a run goes by. */
export interface LoadClock {
  nowMs(): number;
  sleep(ms: number): Promise<unknown>;
  /** Resolves after one turn of the event loop. */
  turn(): Promise<unknown>;
}

const realClock: LoadClock = {
  nowMs: () => performance.now(),
  sleep: (ms) => pause(ms),
  turn: () => new Promise((resolve) => setImmediate(resolve)),
};

/** What is asked of a run. Times are in milliseconds. */
export interface Load {
  /** What is called: each call goes to the next one. */
  readonly targets: readonly Target[];
  readonly durationMs: number;
  /** Calls that were meant to start before this time are made, and not counted. */
  readonly warmupMs: number;
  /** The most calls at once. Closed loop: exactly as many. Open loop: one more is skipped, and counted. */
  readonly concurrency: number;
  /** Calls a second, whatever the server answers: an open loop. Undefined: a closed one. */
  readonly rate: number | undefined;
  /** Time between two calls of an open loop: all equal, or as independent callers make them. */
  readonly arrivals: "constant" | "poisson";
  readonly random: () => number;
  /** How long calls are waited for that have not ended with the run. */
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
  /** Default: that of the system. */
  readonly clock?: LoadClock;
  /** Called about once a second. */
  onProgress(done: Tally, elapsedMs: number): void;
}

/** What was counted of one server. */
export class ServerTally {
  readonly url: string;
  /** Latency of calls that succeeded. */
  readonly latencyMs = new Histogram();
  failed = 0;

  constructor(url: string) {
    this.url = url;
  }
}

/** What was counted, of the calls after the warm-up. */
export class Tally {
  /** Latency of calls that succeeded, from the time at which they were meant to start. */
  readonly latencyMs = new Histogram();
  /** Service time of calls that succeeded, from the time at which they started. */
  readonly serviceMs = new Histogram();
  /** Latency of calls that failed, from the time at which they were meant to start. */
  readonly failedMs = new Histogram();
  /** How late calls started. */
  readonly lateMs = new Histogram();
  readonly failures: Record<string, number> = {};
  bytes = 0;
  /** Calls that an open loop did not start, because too many were in flight. */
  skipped = 0;
  started = 0;
  /** The tally of each server, by its URL. */
  readonly servers: ReadonlyMap<string, ServerTally>;

  constructor(urls: Iterable<string> = []) {
    this.servers = new Map([...urls].map((url) => [url, new ServerTally(url)]));
  }

  get failed(): number {
    return this.failedMs.count;
  }
}

/** Runs a load to its end, and waits for the calls that are in flight then. */
export async function runLoad(load: Load): Promise<Tally> {
  const { targets, clock = realClock } = load;
  const tally = new Tally(targets.map(({ url }) => url));
  const startMs = clock.nowMs();
  const countFromMs = startMs + load.warmupMs;
  const endMs = countFromMs + load.durationMs;
  const ending = new AbortController();
  const inFlight = new Set<Promise<void>>();
  const progress = setInterval(() => load.onProgress(tally, clock.nowMs() - startMs), 1000);
  let made = 0;
  const begin = (intendedMs: number): Promise<void> => {
    const target = targets[made++ % targets.length] as Target;
    const call = one(target, clock, tally, intendedMs, intendedMs >= countFromMs, ending.signal);
    inFlight.add(call);
    return call.finally(() => inFlight.delete(call));
  };
  try {
    if (load.rate === undefined) await closedLoop(load, clock, endMs, begin);
    else
      await openLoop(
        load,
        clock,
        load.rate,
        tally,
        { startMs, countFromMs, endMs },
        () => inFlight.size,
        begin,
      );
    const stragglers = Promise.all(inFlight);
    await Promise.race([
      stragglers,
      pause(load.timeoutMs, undefined, { ref: false, signal: load.signal }).catch(() => {}),
    ]);
  } finally {
    clearInterval(progress);
    // What has not ended by now counts as failed, with `cancelled`.
    ending.abort();
    await Promise.all(inFlight);
  }
  return tally;
}

/** As many callers as may be at once, each of which calls again when it has an answer. */
async function closedLoop(
  load: Load,
  clock: LoadClock,
  endMs: number,
  begin: (intendedMs: number) => Promise<void>,
): Promise<void> {
  const caller = async () => {
    for (;;) {
      const nowMs = clock.nowMs();
      if (nowMs >= endMs || load.signal.aborted) return;
      await begin(nowMs);
    }
  };
  await Promise.all(Array.from({ length: load.concurrency }, caller));
}

/** Calls by a schedule that answers have no influence on. One turn of the event loop starts all that are due. */
async function openLoop(
  load: Load,
  clock: LoadClock,
  rate: number,
  tally: Tally,
  {
    startMs,
    countFromMs,
    endMs,
  }: { readonly startMs: number; readonly countFromMs: number; readonly endMs: number },
  inFlight: () => number,
  begin: (intendedMs: number) => Promise<void>,
): Promise<void> {
  const meanMs = 1000 / rate;
  const gapMs = () => (load.arrivals === "constant" ? meanMs : -Math.log(1 - load.random()) * meanMs);
  let dueMs = startMs;
  while (dueMs < endMs && !load.signal.aborted) {
    const nowMs = clock.nowMs();
    for (; dueMs <= nowMs && dueMs < endMs; dueMs += gapMs()) {
      if (inFlight() < load.concurrency) void begin(dueMs);
      else if (dueMs >= countFromMs) tally.skipped++;
    }
    // Timers are a millisecond coarse: the last two are spent in turns of the event loop.
    const leftMs = dueMs - clock.nowMs();
    if (leftMs > 2) await clock.sleep(Math.floor(leftMs - 1));
    else await clock.turn();
  }
}

async function one(
  target: Target,
  clock: LoadClock,
  tally: Tally,
  intendedMs: number,
  isCounted: boolean,
  signal: AbortSignal,
): Promise<void> {
  const server = tally.servers.get(target.url);
  const startedMs = clock.nowMs();
  if (isCounted) {
    tally.started++;
    tally.lateMs.record(startedMs - intendedMs);
  }
  try {
    const bytes = await target.call(signal);
    if (!isCounted) return;
    const nowMs = clock.nowMs();
    tally.latencyMs.record(nowMs - intendedMs);
    tally.serviceMs.record(nowMs - startedMs);
    server?.latencyMs.record(nowMs - intendedMs);
    tally.bytes += bytes;
  } catch (error) {
    if (!(error instanceof RpcError)) throw error;
    if (!isCounted) return;
    tally.failedMs.record(clock.nowMs() - intendedMs);
    if (server !== undefined) server.failed++;
    tally.failures[error.code] = (tally.failures[error.code] ?? 0) + 1;
  }
}

/** Why the figures of a run say nothing about the server; undefined where they do. */
export function faultOfRun(tally: Tally, isOpenLoop: boolean): string | undefined {
  const { started, skipped, latencyMs, lateMs } = tally;
  if (started === 0) return "no call was started after the warm-up: give a longer --duration";
  if (!isOpenLoop) return undefined;
  const offered = started / (started + skipped);
  if (offered < 0.99)
    return `only ${(100 * offered).toFixed(1)} % of the rate was offered: ${skipped} calls found too many in flight`;
  const late = lateMs.percentile(50);
  const median = latencyMs.percentile(50);
  if (latencyMs.count > 0 && late > median / 10)
    return `this process started calls ${late.toFixed(3)} ms late, which is more than a tenth of the median: give a lower --rate, or a machine that is less busy`;
  return undefined;
}
