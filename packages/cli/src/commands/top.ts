import { setTimeout as pause } from "node:timers/promises";
import { Histogram, type Peer } from "cinnabar/standard";
import type { InspectedChange, InspectedMethod } from "cinnabar-inspect";
import { argumentsOf } from "../arguments.ts";
import { type Command, UsageError } from "../command.ts";
import { CommandError, statusOf, wrongAnswer } from "../command-error.ts";
import {
  type Connection,
  connectionHelp,
  connectionOptions,
  type Server,
  serversOf,
  withEngine,
} from "../connection.ts";
import { blocked, inspect, inspectError, inWords, shortNumber, urlsOf } from "../inspected.ts";
import { milliseconds } from "../quantities.ts";
import { numbers } from "../table.ts";
import type { Terminal } from "../terminal.ts";

const help = `Usage: cinnabar top URL… [--sort COLUMN] [--every TIME] [--once] [--json]
       [OPTION…]

Shows what engines do, again and again: for each engine the calls in a second
that it has served (IN/S) and made (OUT/S), failed ones (ERR/S), open calls,
calls that wait, peers, the in-flight windows, bytes of memory lent to peers, and
the share of time that its event loop was blocked (STALL). Of its process: the
version, how long the engine is open (UP), processor time (CPU, of one processor),
resident memory (RSS) and JavaScript's heap. For each method, of all engines
together: calls and errors in a second, open calls, median and 99th percentile.
The engines must serve inspection(engine) of cinnabar-inspect.

On a terminal these keys work:
  s              Sorts by the next column.
  p              Shows processes instead of calls of engines, and back.
  q, Ctrl-C      End.

Options:
  --sort COLUMN  calls, errors, open, p50, p99 or method. Default: calls.
  --every TIME   The interval, 100ms or longer. Default: 1s.
  --once         Prints one interval, and ends. Status 0: every engine has answered.
  --json         Prints each interval as one JSON object on one line.
${connectionHelp}`;

const columns = ["calls", "errors", "open", "p50", "p99", "method"] as const;
type Column = (typeof columns)[number];

const shortestMs = 100;

/** `cinnabar top`: what engines do. */
export const top: Command = {
  help,
  run(args, terminal) {
    const { values, positionals } = argumentsOf(args, {
      ...connectionOptions,
      sort: { type: "string", default: "calls" },
      every: { type: "string", default: "1s" },
      once: { type: "boolean", default: false },
      json: { type: "boolean", default: false },
    });
    const named = urlsOf(positionals);
    const { once, json } = values;
    const sort = columns.find((column) => column === values.sort);
    if (sort === undefined) throw new UsageError(`--sort must be one of ${columns.join(", ")}`);
    const everyMs = milliseconds("--every", values.every);
    if (everyMs < shortestMs) throw new UsageError(`--every must be at least ${shortestMs}ms`);
    return withEngine("top", values, terminal, async (connection) => {
      const servers = serversOf(named, connection.names);
      const engines = servers.map((server) => new WatchedEngine(server, everyMs, connection));
      return once
        ? showOnce(engines, sort, json, everyMs + connection.timeoutMs, terminal)
        : show(engines, sort, json, everyMs, terminal, connection);
    });
  },
};

/** One engine, followed through its restarts. */
class WatchedEngine {
  readonly url: string;
  readonly #server: Server;
  readonly #everyMs: number;
  readonly #connection: Connection;
  #peer: Peer | undefined;
  /** The last two items of one life of the engine, and all methods of its items. */
  #before: InspectedChange | undefined;
  #now: InspectedChange | undefined;
  readonly #methods = new Map<string, { before: InspectedMethod | undefined; now: InspectedMethod }>();
  /** When the last item came, on this process's clock. */
  #heardMs = Number.NEGATIVE_INFINITY;
  /** Why there are no items. */
  failure: CommandError | undefined;

  constructor(server: Server, everyMs: number, connection: Connection) {
    this.#server = server;
    this.url = server.url;
    this.#everyMs = everyMs;
    this.#connection = connection;
  }

  /**
   * Takes items until `until` says that they suffice, or the engine is lost. `patienceMs`: how late an item may be.
   * @throws CommandError, UsageError.
   */
  async follow(until: () => boolean, patienceMs = Number.POSITIVE_INFINITY): Promise<void> {
    const late = new AbortController();
    const signal = AbortSignal.any([this.#connection.signal, late.signal]);
    const wait = () =>
      patienceMs < Number.POSITIVE_INFINITY ? setTimeout(() => late.abort(), patienceMs) : undefined;
    let timer: NodeJS.Timeout | undefined;
    try {
      const { peer, inspection } = await inspect(this.#server, this.#connection);
      this.#peer = peer;
      timer = wait();
      for await (const item of inspection.watch({ everyMs: this.#everyMs }, { signal })) {
        this.#take(item);
        if (until()) return;
        timer?.refresh();
      }
    } catch (error) {
      if (error instanceof UsageError) throw error;
      if (late.signal.aborted) {
        const why = this.#peer?.state === "suspect" ? blocked : `nothing has come for ${patienceMs} ms`;
        throw new CommandError(`${this.url}: ${why}`, statusOf("deadline_exceeded"), error);
      }
      throw inspectError(error, this.url, this.#peer);
    } finally {
      clearTimeout(timer);
      // The next time connects anew: the address may have become another engine's.
      this.#peer?.close();
    }
  }

  /** @throws CommandError for an item that no engine sends. */
  #take(item: InspectedChange): void {
    for (const { latencyMs } of item.methods) {
      try {
        Histogram.from(latencyMs);
      } catch (error) {
        throw new CommandError(
          `${this.url}: ${wrongAnswer}: ${(error as Error).message}`,
          statusOf("internal"),
        );
      }
    }
    this.failure = undefined;
    this.#heardMs = performance.now();
    if (item.incarnation !== this.#now?.incarnation || item.seq === 0) {
      this.#before = undefined;
      this.#methods.clear();
    } else this.#before = this.#now;
    this.#now = item;
    for (const kept of this.#methods.values()) kept.before = kept.now;
    for (const method of item.methods) {
      const key = `${method.direction} ${method.method}`;
      this.#methods.set(key, { before: this.#methods.get(key)?.now, now: method });
    }
  }

  /** Whether an interval has been seen. */
  get isMeasured(): boolean {
    return this.#before !== undefined;
  }

  get isBlocked(): boolean {
    return this.#peer?.state === "suspect" && performance.now() - this.#heardMs > this.#everyMs;
  }

  get state(): string {
    if (this.isBlocked) return "blocked";
    if (this.failure !== undefined) return isWrong(this.failure) ? "wrong" : "lost";
    return this.#now?.health.status ?? "connecting";
  }

  /** How many methods the engine left out, because there are too many. */
  get methodsLeftOut(): number {
    return this.#now?.methodsLeftOut ?? 0;
  }

  /** Its activity in the last interval; undefined while it is unknown. */
  interval() {
    const [before, now] = [this.#before, this.#now];
    const isOld = this.failure !== undefined || this.isBlocked;
    if (before === undefined || now === undefined || isOld) return undefined;
    const seconds = Math.max(0.001, (now.upMs - before.upMs) / 1000);
    const [was, is] = [before.stats.counters, now.stats.counters];
    const { stats } = now;
    const stallMs = stalledMs(now) - stalledMs(before);
    return {
      seconds,
      upMs: now.upMs,
      incarnation: now.incarnation,
      inPerSecond:
        (is.requestsSucceeded + is.requestsFailed - was.requestsSucceeded - was.requestsFailed) / seconds,
      outPerSecond: (is.callsSucceeded + is.callsFailed - was.callsSucceeded - was.callsFailed) / seconds,
      errorsPerSecond: (is.requestsFailed + is.callsFailed - was.requestsFailed - was.callsFailed) / seconds,
      openIn: stats.calls.in,
      openOut: stats.calls.out,
      waiting: stats.calls.waiting + stats.admission.queued,
      peers: stats.sessions,
      window: now.windows,
      lentBytes: now.lentBytes,
      heldBytes:
        stats.pool.takenBytes +
        stats.pullingBytes +
        stats.offeredBytes +
        stats.streamBytes +
        stats.queuedBytes,
      quarantinedBytes: stats.quarantinedBytes,
      stallShare: Math.min(1, stallMs / (seconds * 1000)),
      version: now.version,
      node: now.node,
      cpuShare: Math.max(0, now.process.cpuUs - before.process.cpuUs) / (seconds * 1e6),
      residentBytes: now.process.residentBytes,
      heapBytes: now.process.heapBytes,
    };
  }

  /** What each method did in the last interval. */
  *methods(): Iterable<MethodInterval> {
    const interval = this.interval();
    if (interval === undefined) return;
    for (const { before, now } of this.#methods.values()) {
      const latency = Histogram.from(now.latencyMs);
      yield {
        method: now.method,
        direction: now.direction,
        inFlight: now.inFlight,
        callsPerSecond: (endedOf(now) - (before === undefined ? 0 : endedOf(before))) / interval.seconds,
        errorsPerSecond: (now.failed - (before?.failed ?? 0)) / interval.seconds,
        latency: since(latency, before),
      };
    }
  }
}

interface MethodInterval {
  readonly method: string;
  readonly direction: "in" | "out";
  readonly inFlight: number;
  readonly callsPerSecond: number;
  readonly errorsPerSecond: number;
  /** Latency of the calls that ended in the interval, in milliseconds. */
  readonly latency: Histogram;
}

/** The latency recorded since `before`; all of it if the engine now reports less than before. */
function since(latency: Histogram, before: InspectedMethod | undefined): Histogram {
  if (before === undefined) return latency;
  try {
    return latency.since(Histogram.from(before.latencyMs));
  } catch {
    return latency;
  }
}

/** Whether an engine has sent an answer that no engine sends. */
const isWrong = (error: unknown): boolean =>
  error instanceof CommandError && error.status === statusOf("internal");

const endedOf = ({ succeeded, failed }: InspectedMethod): number => succeeded + failed;

function stalledMs({ stats }: InspectedChange): number {
  return stats.ports.reduce((most, { stalls }) => Math.max(most, stalls.totalMs), 0);
}

async function showOnce(
  engines: readonly WatchedEngine[],
  sort: Column,
  json: boolean,
  patienceMs: number,
  terminal: Terminal,
): Promise<number> {
  await Promise.all(
    engines.map(async (engine) => {
      try {
        await engine.follow(() => engine.isMeasured, patienceMs);
      } catch (error) {
        if (!(error instanceof CommandError)) throw error;
        engine.failure = error;
      }
    }),
  );
  const failures = engines.flatMap(({ failure }) => failure ?? []);
  const [first] = failures;
  if (failures.length < engines.length)
    terminal.print(frame(engines, { sort, table: undefined }, json, terminal));
  for (const { message } of failures) terminal.complain(`cinnabar top: ${message}`);
  return first?.status ?? 0;
}

/** Until Ctrl-C or q. An engine that is lost is looked for again, but all must have been there once. */
async function show(
  engines: readonly WatchedEngine[],
  sort: Column,
  json: boolean,
  everyMs: number,
  terminal: Terminal,
  { signal }: Connection,
): Promise<number> {
  const ended = new AbortController();
  const over = AbortSignal.any([signal, ended.signal]);
  let failed: unknown;
  const keys = new Keys(terminal, sort, () => ended.abort());
  const follow = async (engine: WatchedEngine) => {
    let wasThere = false;
    while (!over.aborted) {
      try {
        await engine.follow(() => {
          wasThere = true;
          return over.aborted;
        });
      } catch (error) {
        // An engine with wrong answers is shown as such, and the others go on.
        const goesOn = wasThere || (engines.length > 1 && isWrong(error));
        if (!(error instanceof CommandError && goesOn)) {
          if (!over.aborted) failed ??= error;
          ended.abort();
          return;
        }
        engine.failure = error;
      }
      await pause(everyMs, undefined, { signal: over, ref: false }).catch(() => {});
    }
  };
  for (const engine of engines) void follow(engine);
  try {
    while (!over.aborted) {
      await pause(everyMs, undefined, { signal: over }).catch(() => {});
      if (over.aborted || !engines.some(({ isMeasured }) => isMeasured)) continue;
      const lines = frame(engines, keys, json, terminal);
      if (terminal.rows === undefined || json) terminal.print(lines);
      else terminal.draw(lines);
    }
  } finally {
    keys.release();
  }
  if (failed !== undefined) throw failed;
  return 0;
}

/** How engines and methods are shown. */
interface View {
  readonly sort: Column;
  /** The table of engines; undefined: both. */
  readonly table: "calls" | "processes" | undefined;
}

/** The keys that a reader at a terminal has. */
class Keys implements View {
  sort: Column;
  table: View["table"];
  readonly #onEnd: () => void;
  readonly #isOn: boolean;

  constructor(terminal: Terminal, sort: Column, onEnd: () => void) {
    this.sort = sort;
    this.#onEnd = onEnd;
    this.#isOn = terminal.rows !== undefined && process.stdin.isTTY === true;
    if (!this.#isOn) return;
    this.table = "calls";
    process.stdin.setRawMode(true).on("data", this.#onKey).resume();
  }

  release(): void {
    if (!this.#isOn) return;
    process.stdin.off("data", this.#onKey).pause().setRawMode(false);
  }

  readonly #onKey = (data: Buffer): void => {
    const key = data.toString("latin1");
    // In raw mode the terminal makes no signal of Ctrl-C.
    if (key === "\u0003") process.kill(process.pid, "SIGINT");
    if (key === "q") this.#onEnd();
    if (key === "p") this.table = this.table === "calls" ? "processes" : "calls";
    if (key === "s") this.sort = columns[(columns.indexOf(this.sort) + 1) % columns.length] as Column;
  };
}

function frame(engines: readonly WatchedEngine[], view: View, json: boolean, terminal: Terminal): string[] {
  const methods = sorted(methodsOf(engines), view.sort);
  return json ? [asJson(engines, methods)] : asText(engines, methods, view, terminal);
}

/** The methods of all engines: one row for a method and direction. */
function methodsOf(engines: readonly WatchedEngine[]): MethodInterval[] {
  const rows = new Map<string, MethodInterval>();
  for (const engine of engines) {
    for (const each of engine.methods()) {
      const key = `${each.direction} ${each.method}`;
      const row = rows.get(key);
      if (row === undefined) {
        rows.set(key, each);
        continue;
      }
      row.latency.merge(each.latency);
      rows.set(key, {
        ...row,
        inFlight: row.inFlight + each.inFlight,
        callsPerSecond: row.callsPerSecond + each.callsPerSecond,
        errorsPerSecond: row.errorsPerSecond + each.errorsPerSecond,
      });
    }
  }
  return [...rows.values()];
}

function sorted(methods: readonly MethodInterval[], sort: Column): MethodInterval[] {
  const keys: { readonly [column in Exclude<Column, "method">]: (method: MethodInterval) => number } = {
    calls: ({ callsPerSecond }) => callsPerSecond,
    errors: ({ errorsPerSecond }) => errorsPerSecond,
    open: ({ inFlight }) => inFlight,
    p50: ({ latency }) => latency.percentile(50),
    p99: ({ latency }) => latency.percentile(99),
  };
  const byName = (a: MethodInterval, b: MethodInterval) =>
    a.method.localeCompare(b.method) || a.direction.localeCompare(b.direction);
  if (sort === "method") return [...methods].sort(byName);
  const key = keys[sort];
  return [...methods].sort((a, b) => key(b) - key(a) || byName(a, b));
}

function asJson(engines: readonly WatchedEngine[], methods: readonly MethodInterval[]): string {
  return JSON.stringify({
    engines: engines.map((engine) => ({ url: engine.url, state: engine.state, ...engine.interval() })),
    methodsLeftOut: engines.reduce((sum, engine) => sum + engine.methodsLeftOut, 0),
    methods: methods.map(({ latency, ...method }) => ({
      ...method,
      p50Ms: latency.percentile(50),
      p99Ms: latency.percentile(99),
    })),
  });
}

function asText(
  engines: readonly WatchedEngine[],
  methods: readonly MethodInterval[],
  { sort, table }: View,
  terminal: Terminal,
): string[] {
  const tables = [
    ...(table === "processes" ? [] : [engineTable(engines, callColumns, terminal)]),
    ...(table === "calls" ? [] : [engineTable(engines, processColumns, terminal)]),
  ];
  const methodRows = methods.map(
    ({ method, direction, callsPerSecond, errorsPerSecond, inFlight, latency }) => [
      method,
      direction,
      shortNumber(callsPerSecond),
      shortNumber(errorsPerSecond),
      shortNumber(inFlight),
      latency.count === 0 ? "-" : inWords(latency.percentile(50)),
      latency.count === 0 ? "-" : inWords(latency.percentile(99)),
    ],
  );
  const methodHeading = ["METHOD", "DIR", "CALLS/S", "ERR/S", "OPEN", "P50", "P99"];
  const lost = engines.flatMap(({ failure }) => (failure === undefined ? [] : [failure.message]));
  const leftOut = engines.reduce((sum, engine) => sum + engine.methodsLeftOut, 0);
  const keys = table === undefined ? "" : "; s: next column, p: calls or processes, q: end";
  return [
    ...tables.flatMap((lines, at) => (at === 0 ? lines : ["", ...lines])),
    ...lost.map((line) => line.slice(0, terminal.columns)),
    "",
    ...(methodRows.length === 0 ? ["no method was called"] : numbers(terminal, methodHeading, methodRows)),
    "",
    `sorted by ${sort}${leftOut > 0 ? `; ${leftOut} methods were left out` : ""}${keys}`,
  ];
}

type Interval = NonNullable<ReturnType<WatchedEngine["interval"]>>;
type EngineColumns = Readonly<Record<string, (interval: Interval) => string>>;

const callColumns: EngineColumns = {
  "IN/S": ({ inPerSecond }) => shortNumber(inPerSecond),
  "OUT/S": ({ outPerSecond }) => shortNumber(outPerSecond),
  "ERR/S": ({ errorsPerSecond }) => shortNumber(errorsPerSecond),
  OPEN: ({ openIn, openOut }) => shortNumber(openIn + openOut),
  WAIT: ({ waiting }) => shortNumber(waiting),
  PEERS: ({ peers }) => shortNumber(peers),
  WINDOW: ({ window }) => `${shortNumber(window.inFlight)}/${shortNumber(window.limit)}`,
  LENT: ({ lentBytes }) => shortNumber(lentBytes),
  STALL: ({ stallShare }) => `${Math.round(stallShare * 100)}%`,
};

const processColumns: EngineColumns = {
  VERSION: ({ version }) => version,
  NODE: ({ node }) => node,
  UP: ({ upMs }) => inWords(upMs),
  CPU: ({ cpuShare }) => `${Math.round(cpuShare * 100)}%`,
  RSS: ({ residentBytes }) => shortNumber(residentBytes),
  HEAP: ({ heapBytes }) => shortNumber(heapBytes),
};

function engineTable(
  engines: readonly WatchedEngine[],
  columns: EngineColumns,
  terminal: Terminal,
): string[] {
  const heading = ["ENGINE", "STATE", ...Object.keys(columns)];
  const rows = engines.map((engine) => {
    const interval = engine.interval();
    const cells = Object.values(columns).map((of) => (interval === undefined ? "-" : of(interval)));
    return [engine.url, engine.state, ...cells];
  });
  return numbers(terminal, heading, rows);
}
