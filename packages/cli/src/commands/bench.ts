import type { EngineOptions, Histogram, Peer } from "cinnabar/standard";
import { inspection, reflection } from "cinnabar-inspect";
import { argumentsOf } from "../arguments.ts";
import { page, percentileText, picture } from "../bench/curve.ts";
import { distribution, seededRandom } from "../bench/distribution.ts";
import { faultOfRun, type Load, runLoad, type Tally } from "../bench/load.ts";
import { Bench, benchServer, Injector } from "../bench/server.ts";
import { benchTarget, methodTarget, type Target, used, type Way, ways } from "../bench/traffic.ts";
import { type Command, UsageError } from "../command.ts";
import {
  type Connection,
  connectionHelp,
  connectionOptions,
  type Server,
  serversOf,
  withEngine,
} from "../connection.ts";
import { metadataOf } from "../metadata.ts";
import { assertWritable, writeWhole } from "../output-file.ts";
import { bytes, integer, milliseconds } from "../quantities.ts";
import { table } from "../table.ts";
import type { Terminal } from "../terminal.ts";

const help = `Usage: cinnabar bench URL… [OPTION…]
       cinnabar bench serve [--listen URL…] [--delay TIMES] [--fail SHARE] [OPTION…]

Loads servers and prints how long their answers take. \`bench serve\` is the other
end; --method loads a unary method of any server with reflection. Without --rate
each of --concurrency callers calls again when it has an answer: a closed loop.
With --rate calls start by a schedule, and latency counts from the time at which
a call was meant to start: an open loop. A run whose generator was late says that
it is invalid, and ends with status 1.

Load:
  --rate N         Calls a second. Default: a closed loop.
  --arrivals KIND  Gaps of an open loop: poisson or constant. Default: poisson.
  --concurrency N  Calls at once, of all clients. Default: 1; with --rate 10000,
                   beyond which calls are skipped and counted.
  --clients N      Clients, each with sessions of its own. Each call is made by the
                   next client, and each client calls the next server. Default: 1.
  --duration TIME  How long calls are counted. Default: 10s.
  --warmup TIME    How long calls are made before. Default: 1s.
  --seed N         Draws the same sizes, gaps and delays again. Default: 1.

Calls:
  --size SIZES     The bytes of a call: a size, a range or weights: 4KiB, 64..4096,
                   1KiB:90,64KiB:10. Default: 64.
  --inline WAY     Sends the bytes in messages: as input, as output, or as both.
                   Default: both.
  --bulk WAY       Moves the bytes between memory instead: the server reads from
                   the client's, or writes into it. WAY is from or into.
  --metadata NAME=VALUE
                   Metadata of each call. Repeatable.
  --method NAME    Calls SERVICE/METHOD instead, with the JSON of --input.
  --input JSON     Its input.
  --allow-writes   Lets --method be one that is not idempotent.
  --contract FILE  Takes its contract from a module that exports the service.

Results:
  --json           Prints one object, with the histograms.
  --histogram FILE Writes the percentiles of the latency in HdrHistogram's text
                   form, which its plotters read.
  --picture FILE   Draws the latency by percentile: FILE.svg, or FILE.html with the
                   figures.

Of \`bench serve\`:
  --listen URL     Where to listen. Default: tcp://127.0.0.1:0.
  --delay TIMES    How long to wait before an answer, such as 1ms, 1ms..5ms or
                   1ms:90,20ms:10. Default: none.
  --fail SHARE     The share of calls to fail with aborted, 0 to 1.
${connectionHelp}`;

const options = {
  ...connectionOptions,
  rate: { type: "string" },
  arrivals: { type: "string", default: "poisson" },
  concurrency: { type: "string" },
  clients: { type: "string", default: "1" },
  duration: { type: "string", default: "10s" },
  warmup: { type: "string", default: "1s" },
  size: { type: "string", default: "64" },
  inline: { type: "string" },
  bulk: { type: "string" },
  seed: { type: "string", default: "1" },
  method: { type: "string" },
  input: { type: "string" },
  "allow-writes": { type: "boolean" },
  contract: { type: "string" },
  metadata: { type: "string", multiple: true },
  json: { type: "boolean" },
  histogram: { type: "string" },
  picture: { type: "string" },
  listen: { type: "string", multiple: true },
  delay: { type: "string" },
  fail: { type: "string", default: "0" },
} as const;

type Values = ReturnType<typeof argumentsOf<typeof options>>["values"];

/** `cinnabar bench`: a load with known arrivals, and the server for it. */
export const bench: Command = {
  help,
  run(args, terminal) {
    const { values, positionals } = argumentsOf(args, options);
    const [first, ...more] = positionals;
    if (first === undefined) throw new UsageError("expected at least one URL, or serve");
    const random = seededRandom(integer("--seed", values.seed, 0, 2 ** 32 - 1));
    if (first !== "serve") return measure(positionals, values, random, terminal);
    if (more.length > 0) throw new UsageError(`unexpected argument "${more[0]}"`);
    return serve(values, random, terminal);
  },
};

function serve(values: Values, random: () => number, terminal: Terminal): Promise<number> {
  const delayMs =
    values.delay === undefined
      ? undefined
      : distribution("--delay", values.delay, (text) => milliseconds("--delay", text));
  const injector = new Injector({ delayMs, failShare: shareOf("--fail", values.fail), random });
  const serving: EngineOptions = {
    listen: values.listen ?? ["tcp://127.0.0.1:0"],
    serve: (opening) => [benchServer(injector, opening.pool), reflection(opening), inspection(opening)],
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
      const { calls, failed, delayedMs } = injector;
      const served = { calls, failed, delayedMs: delayedMs.summary() };
      terminal.print(
        values.json
          ? JSON.stringify(served)
          : `served ${calls} calls, of which ${failed} failed as --fail asks; the median delay was ${delayedMs.percentile(50).toFixed(3)} ms`,
      );
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

function measure(
  named: readonly string[],
  values: Values,
  random: () => number,
  terminal: Terminal,
): Promise<number> {
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
  const clients = integer("--clients", values.clients, 1, 1000);
  const durationMs = milliseconds("--duration", values.duration);
  const warmupMs = milliseconds("--warmup", values.warmup);
  const way = wayOf(values);
  const metadata = values.metadata && metadataOf(values.metadata);
  const sizes = distribution("--size", values.size, (text) => bytes("--size", text));
  if (values.picture !== undefined && !/\.(svg|html)$/.test(values.picture))
    throw new UsageError(`--picture must be a file with .svg or .html, it is "${values.picture}"`);
  return withEngine("bench", values, terminal, async (connection) => {
    for (const option of ["histogram", "picture"] as const)
      if (values[option] !== undefined) assertWritable(`--${option}`, values[option]);
    const servers = serversOf(named, connection.names);
    const urls = servers.map(({ url }) => url);
    const { targets, peers } = await targetsOf(servers, clients, connection, (client, peer) =>
      values.method === undefined
        ? benchTarget(client, peer, way, () => sizes(random), metadata)
        : methodTarget(peer, client, {
            name: values.method,
            input: values.input,
            allowWrites: values["allow-writes"] === true,
            contract: values.contract,
            metadata,
          }),
    );
    const { timeoutMs, signal } = connection;
    const load: Load = {
      ...{ targets, durationMs, warmupMs, concurrency, rate, arrivals, random, timeoutMs, signal },
      onProgress: progress(warmupMs + durationMs),
    };
    // Only calls after the warm-up are counted, and so is the time that they take of a processor.
    let before = used(peers, timeoutMs);
    const warm = setTimeout(() => {
      before = used(peers, timeoutMs);
    }, warmupMs);
    const tally = await runLoad(load).finally(() => clearTimeout(warm));
    if (signal.aborted) return 0;
    const [was, is] = [await before, await used(peers, timeoutMs)];
    const byCall = (from: number | undefined, to: number | undefined) =>
      from === undefined || to === undefined ? null : (to - from) / Math.max(1, tally.started);
    const fault = faultOfRun(tally, rate !== undefined);
    const report = {
      urls,
      clients,
      method: values.method ?? `${Bench.name}/${ways[way]}`,
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
      clientCpuUsByCall: byCall(was.clientUs, is.clientUs),
      serverCpuUsByCall: byCall(was.serverUs, is.serverUs),
      latencyMs: tally.latencyMs.summary(),
      serviceMs: tally.serviceMs.summary(),
      failedMs: tally.failedMs.summary(),
      lateMs: tally.lateMs.summary(),
      servers: [...tally.servers.values()].map(({ url, latencyMs, failed }) => ({
        url,
        failed,
        latencyMs: latencyMs.summary(),
      })),
      histogram: tally.latencyMs.toJSON(),
      invalid: fault ?? null,
    };
    terminal.print(values.json ? JSON.stringify(report) : inWords(report, tally, terminal));
    if (values.histogram !== undefined)
      writeWhole("--histogram", values.histogram, percentileText(tally.latencyMs));
    if (values.picture !== undefined)
      writeWhole("--picture", values.picture, drawn(values.picture, headOf(report), tally));
    if (fault === undefined) return 0;
    terminal.complain(`cinnabar bench: the run is invalid: ${fault}`);
    return 1;
  });
}

function wayOf({ inline, bulk, method }: Values): Way {
  if (inline !== undefined && bulk !== undefined)
    throw new UsageError("--inline and --bulk exclude each other");
  if (method !== undefined && (inline !== undefined || bulk !== undefined))
    throw new UsageError(
      "--inline and --bulk say how bytes go to `bench serve`, and --method names another method",
    );
  if (inline !== undefined && inline !== "both" && inline !== "input" && inline !== "output")
    throw new UsageError(`--inline must be both, input or output, it is "${inline}"`);
  if (bulk !== undefined && bulk !== "from" && bulk !== "into")
    throw new UsageError(`--bulk must be from or into, it is "${bulk}"`);
  return bulk ?? inline ?? "both";
}

/** Each client with each server: one call after the other goes to the next of them. */
async function targetsOf(
  servers: readonly Server[],
  clients: number,
  connection: Connection,
  make: (client: Connection, peer: Peer) => Target | Promise<Target>,
): Promise<{ readonly targets: readonly Target[]; readonly peers: readonly Peer[] }> {
  const targets: Target[] = [];
  const peers: Peer[] = [];
  for (let index = 0; index < clients; index++) {
    const client = index === 0 ? connection : await connection.another();
    for (const server of servers) {
      const peer = await client.dial(server);
      const { call } = await make(client, peer);
      targets.push({ url: server.url, call });
      if (index === 0) peers.push(peer);
    }
  }
  return { targets, peers };
}

/** Shows on a terminal how far a run is, on standard error. */
function progress(wholeMs: number): Load["onProgress"] {
  if (process.stderr.isTTY !== true) return () => {};
  return ({ latencyMs, failed }, elapsedMs) => {
    const left = Math.max(0, Math.round((wholeMs - elapsedMs) / 1000));
    process.stderr.write(`${latencyMs.count} calls, ${failed} failed, ${left} s left\n`);
  };
}

interface Report {
  readonly urls: readonly string[];
  readonly method: string;
  readonly clients: number;
  readonly loop: string;
  readonly callsPerSecond: number;
  readonly bytesPerSecond: number;
  readonly started: number;
  readonly skipped: number;
  readonly clientCpuUsByCall: number | null;
  readonly serverCpuUsByCall: number | null;
}

function headOf({ method, urls, clients, loop }: Report): string {
  const where = urls.length === 1 ? urls[0] : `${urls.length} servers`;
  return `${method} at ${where}, ${clients === 1 ? "" : `${clients} clients, `}${loop} loop`;
}

const percents = [50, 90, 99, 99.9];
const heading = ["MS", "CALLS", ...percents.map((percent) => `P${percent}`), "MAX"];

const figures = (title: string, each: Histogram): string[] => [
  title,
  `${each.count}`,
  ...percents.map((percent) => each.percentile(percent).toFixed(3)),
  each.max.toFixed(3),
];

function rowsOf({ latencyMs, serviceMs, failedMs, servers }: Tally): string[][] {
  const rows = [figures("latency", latencyMs), figures("service time", serviceMs)];
  if (failedMs.count > 0) rows.push(figures("failures", failedMs));
  if (servers.size > 1) for (const { url, latencyMs } of servers.values()) rows.push(figures(url, latencyMs));
  return rows;
}

function inWords(report: Report, tally: Tally, terminal: Terminal): string[] {
  const codes = Object.entries(tally.failures).map(([code, count]) => `${count} ${code}`);
  const { clientCpuUsByCall: client, serverCpuUsByCall: server } = report;
  const took = [
    client === null ? [] : [`${client.toFixed(1)} us of this process by call`],
    server === null ? [] : [`${server.toFixed(1)} us of the servers`],
  ].flat();
  return [
    headOf(report),
    `${report.callsPerSecond.toFixed(0)} calls/s, ${report.bytesPerSecond.toFixed(0)} bytes/s; ${report.started} started, ${report.skipped} skipped${codes.length === 0 ? "" : `, failed: ${codes.join(", ")}`}; ${took.join(", ")}`,
    ...table(terminal, heading, rowsOf(tally)),
  ];
}

function drawn(file: string, title: string, tally: Tally): string {
  const svg = picture(title, [
    { name: "latency", histogram: tally.latencyMs },
    { name: "service time", histogram: tally.serviceMs },
    { name: "failures", histogram: tally.failedMs },
  ]);
  return file.endsWith(".svg") ? svg : page(title, svg, [heading, ...rowsOf(tally)]);
}
