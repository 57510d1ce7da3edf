import { setTimeout as pause } from "node:timers/promises";
import {
  bytes as bytesSchema,
  type EngineOptions,
  type Histogram,
  implement,
  type Peer,
  RpcError,
  service,
  unary,
} from "cinnabar/standard";
import { argumentsOf } from "../arguments.ts";
import { distribution, seededRandom } from "../bench/distribution.ts";
import { faultOfRun, type Load, runLoad, type Tally } from "../bench/load.ts";
import { type Command, UsageError } from "../command.ts";
import { type Connection, connectionHelp, connectionOptions, withEngine } from "../connection.ts";
import { valueOfJson } from "../json-values.ts";
import { bytes, integer, milliseconds } from "../quantities.ts";
import { clientOf, methodName, remoteMethod } from "../remote-method.ts";
import { table } from "../table.ts";
import type { Terminal } from "../terminal.ts";

const help = `Usage: cinnabar bench URL [OPTION…]
       cinnabar bench serve [--listen URL…] [--delay TIMES] [--fail SHARE] [OPTION…]

Loads a server and prints how long its answers take. \`bench serve\` is the other
end; --method loads a unary method of any server with reflection. Without --rate
each of --concurrency callers calls again when it has an answer: a closed loop.
With --rate calls start by a schedule, and latency counts from the time at which
a call was meant to start: an open loop. A run whose generator was late says that
it is invalid, and ends with status 1.

  --rate N         Calls a second. Default: a closed loop.
  --arrivals KIND  Gaps of an open loop: poisson or constant. Default: poisson.
  --concurrency N  Calls at once. Default: 1; with --rate 10000, beyond which calls
                   are skipped and counted.
  --duration TIME  How long calls are counted. Default: 10s.
  --warmup TIME    How long calls are made before. Default: 1s.
  --size SIZES     Bytes of the input, which \`bench serve\` sends back: a size, a
                   range or weights: 4KiB, 64..4096, 1KiB:90,64KiB:10. Default: 64.
  --seed N         Draws the same sizes, gaps and delays again. Default: 1.
  --method NAME    Calls SERVICE/METHOD instead, with the JSON of --input.
  --input JSON     Its input.
  --allow-writes   Lets --method be one that is not idempotent.
  --contract FILE  Takes its contract from a module that exports the service.
  --json           Prints one object, with the histograms.
  --listen URL     Of \`serve\`: where to listen. Default: tcp://127.0.0.1:0.
  --delay TIMES    Of \`serve\`: how long to wait before an answer, such as 1ms,
                   1ms..5ms or 1ms:90,20ms:10. Default: none.
  --fail SHARE     Of \`serve\`: the share of calls to fail with aborted, 0 to 1.
${connectionHelp}`;

const options = {
  ...connectionOptions,
  rate: { type: "string" },
  arrivals: { type: "string", default: "poisson" },
  concurrency: { type: "string" },
  duration: { type: "string", default: "10s" },
  warmup: { type: "string", default: "1s" },
  size: { type: "string", default: "64" },
  seed: { type: "string", default: "1" },
  method: { type: "string" },
  input: { type: "string" },
  "allow-writes": { type: "boolean" },
  contract: { type: "string" },
  json: { type: "boolean" },
  listen: { type: "string", multiple: true },
  delay: { type: "string" },
  fail: { type: "string", default: "0" },
} as const;

type Values = ReturnType<typeof argumentsOf<typeof options>>["values"];

const Bench = service("cinnabar-bench.v1", {
  echo: unary({ input: bytesSchema(), output: bytesSchema(), idempotent: true }),
});

/** `cinnabar bench`: a load with known arrivals, and the server for it. */
export const bench: Command = {
  help,
  run(args, terminal) {
    const { values, positionals } = argumentsOf(args, options);
    const [url, ...more] = positionals;
    if (url === undefined || more.length > 0) throw new UsageError("expected one URL, or serve");
    const random = seededRandom(integer("--seed", values.seed, 0, 2 ** 32 - 1));
    return url === "serve" ? serve(values, random, terminal) : measure(url, values, random, terminal);
  },
};

function serve(values: Values, random: () => number, terminal: Terminal): Promise<number> {
  const delayMs =
    values.delay === undefined
      ? undefined
      : distribution("--delay", values.delay, (text) => milliseconds("--delay", text));
  const failShare = shareOf("--fail", values.fail);
  const echo = implement(Bench, {
    async echo(content) {
      const isFailed = random() < failShare;
      if (delayMs !== undefined) await pause(delayMs(random));
      if (isFailed) throw new RpcError({ code: "aborted", message: "failed as --fail asks" });
      return content;
    },
  });
  const serving: EngineOptions = {
    listen: values.listen ?? ["tcp://127.0.0.1:0"],
    serve: [echo],
    reflection: true,
    onHandlerError: () => {},
  };
  return withEngine(
    "bench",
    values,
    terminal,
    async ({ engine, signal }) => {
      for (const each of engine.urls) terminal.print(`listening at ${each}`);
      await new Promise<void>((resolve) => {
        if (signal.aborted) resolve();
        else signal.addEventListener("abort", () => resolve(), { once: true });
      });
      return 0;
    },
    serving,
  );
}

function shareOf(option: string, text: string): number {
  const share = Number(text);
  if (share >= 0 && share <= 1) return share;
  throw new UsageError(`${option} must be a share from 0 to 1, it is "${text}"`);
}

function measure(url: string, values: Values, random: () => number, terminal: Terminal): Promise<number> {
  const { arrivals } = values;
  if (arrivals !== "poisson" && arrivals !== "constant")
    throw new UsageError(`--arrivals must be poisson or constant, it is "${arrivals}"`);
  const rate = values.rate === undefined ? undefined : integer("--rate", values.rate, 1, 10_000_000);
  const concurrency = integer(
    "--concurrency",
    values.concurrency ?? (rate === undefined ? "1" : "10000"),
    1,
    1_000_000,
  );
  const durationMs = milliseconds("--duration", values.duration);
  const warmupMs = milliseconds("--warmup", values.warmup);
  return withEngine("bench", values, terminal, async (connection) => {
    const peer = await connection.dial(url);
    const call = await callOf(peer, connection, values, random);
    const load: Load = {
      ...{ call, durationMs, warmupMs, concurrency, rate, arrivals, random },
      timeoutMs: connection.timeoutMs,
      signal: connection.signal,
      onProgress: progress(warmupMs + durationMs),
    };
    const used = process.cpuUsage();
    const { tally } = await runLoad(load);
    const { user, system } = process.cpuUsage(used);
    if (connection.signal.aborted) return 0;
    const fault = faultOfRun(tally, rate !== undefined);
    const report = {
      url: peer.url,
      method: values.method ?? "cinnabar-bench.v1/echo",
      loop: rate === undefined ? "closed" : "open",
      rate,
      concurrency,
      durationMs,
      started: tally.started,
      skipped: tally.skipped,
      succeeded: tally.latencyMs.count,
      failed: tally.failed,
      failures: tally.failures,
      callsPerSecond: (1000 * tally.latencyMs.count) / durationMs,
      bytesPerSecond: (1000 * tally.bytes) / durationMs,
      // With the warm-up, which is made of the same calls.
      clientCpuUsByCall:
        (user + system) / Math.max(1, tally.started) / ((warmupMs + durationMs) / durationMs),
      latencyMs: tally.latencyMs.summary(),
      serviceMs: tally.serviceMs.summary(),
      failedMs: tally.failedMs.summary(),
      lateMs: tally.lateMs.summary(),
      histogram: tally.latencyMs.toJSON(),
      invalid: fault ?? null,
    };
    terminal.print(values.json ? JSON.stringify(report) : inWords(report, tally, terminal));
    if (fault === undefined) return 0;
    terminal.complain(`cinnabar bench: the run is invalid: ${fault}`);
    return 1;
  });
}

/** What makes one call, and resolves to the bytes that it moved. */
async function callOf(
  peer: Peer,
  connection: Connection,
  values: Values,
  random: () => number,
): Promise<Load["call"]> {
  const { timeoutMs } = connection;
  if (values.method === undefined) {
    const sizes = distribution("--size", values.size, (text) => bytes("--size", text));
    const { echo } = peer.client(Bench, { timeoutMs });
    return async (signal) => {
      const content = Buffer.alloc(Math.round(sizes(random)));
      return content.length + (await echo(content, { signal })).length;
    };
  }
  const target = await remoteMethod(peer, connection, methodName(values.method), values.contract);
  const { kind, idempotent, input } = target.method;
  if (kind !== "unary") throw new UsageError(`--method must be unary, and ${target.path} is ${kind}`);
  if (!idempotent && values["allow-writes"] !== true)
    throw new UsageError(
      `${target.path} is not idempotent: give --allow-writes if calling it often does no harm`,
    );
  const client = clientOf(peer, target);
  const given = input === undefined ? [] : [valueOfJson(JSON.parse(values.input ?? "{}"), input, "input")];
  return async (signal) => {
    await client(...given, { signal, timeoutMs });
    return 0;
  };
}

/** Shows on a terminal how far a run is, on standard error. */
function progress(wholeMs: number): Load["onProgress"] {
  if (process.stderr.isTTY !== true) return () => {};
  return ({ latencyMs, failed }, elapsedMs) => {
    const left = Math.max(0, Math.round((wholeMs - elapsedMs) / 1000));
    process.stderr.write(`${latencyMs.count} calls, ${failed} failed, ${left} s left\n`);
  };
}

function inWords(
  report: {
    readonly url: string;
    readonly method: string;
    readonly loop: string;
    readonly callsPerSecond: number;
    readonly bytesPerSecond: number;
    readonly started: number;
    readonly skipped: number;
    readonly clientCpuUsByCall: number;
  },
  { latencyMs, serviceMs, failedMs, failures }: Tally,
  terminal: Terminal,
): string {
  const figures = (title: string, each: Histogram) => [
    title,
    `${each.count}`,
    ...[50, 90, 99, 99.9].map((percent) => each.percentile(percent).toFixed(3)),
    each.max.toFixed(3),
  ];
  const rows = [figures("latency", latencyMs), figures("service time", serviceMs)];
  if (failedMs.count > 0) rows.push(figures("failures", failedMs));
  const codes = Object.entries(failures).map(([code, count]) => `${count} ${code}`);
  return [
    `${report.method} at ${report.url}, ${report.loop} loop`,
    `${report.callsPerSecond.toFixed(0)} calls/s, ${report.bytesPerSecond.toFixed(0)} bytes/s; ${report.started} started, ${report.skipped} skipped${codes.length === 0 ? "" : `, failed: ${codes.join(", ")}`}; ${report.clientCpuUsByCall.toFixed(1)} us of this process by call`,
    table(terminal, ["MS", "CALLS", "P50", "P90", "P99", "P99.9", "MAX"], rows),
  ].join("\n");
}
