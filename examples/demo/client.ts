// The pulling process: `node build/examples/demo/client.js FOLDER URL …`; the folder is where the reference hashes are
// taken. A URL that begins with "net+" is a plain socket's, and compared with the one before it.
import { Engine, type Peer, RpcError } from "cinnabar";
import { Files } from "./contract.ts";
import { describe, stopSignal } from "./lifetime.ts";
import { mean, type PullResult, pullAll } from "./puller.ts";
import { hashOnDisk, type References } from "./reference.ts";
import {
  comparisonLegend,
  formatBytes,
  formatCount,
  formatLongest,
  formatTable,
  legend,
  type Measurement,
} from "./report.ts";
import { rmaWindows } from "./rma-window.ts";
import { measureSmallCalls } from "./small-calls.ts";
import { socketWindows } from "./socket-window.ts";

export type FilesClient = ReturnType<typeof clientOf>;

export interface RemoteFile {
  readonly path: string;
  readonly bytes: number;
  readonly modifiedMs: number;
}

const pageLimit = 200;
const shownProblems = 10;

const [root = ".", ...urls] = process.argv.slice(2);
const stop = stopSignal();
try {
  process.exitCode = await run();
} catch (error) {
  if (!stop.aborted) {
    console.error(explain(error));
    process.exitCode = 1;
  }
}

/** Runs everything over each URL, one after the other. Returns the exit status. */
async function run(): Promise<number> {
  await using engine = await Engine.open();
  const measurements: Measurement[] = [];
  const problems: string[] = [];
  let references: References | undefined;

  for (const [index, url] of urls.entries()) {
    if (isSocket(url)) continue; // taken together with the one before it
    const scheme = url.slice(0, url.indexOf(":"));
    const client = clientOf(await engine.connect(url));
    const files = await findFiles(client);
    const bytes = files.reduce((sum, file) => sum + file.bytes, 0);
    console.log(`found ${formatCount(files.length)} files, ${formatBytes(bytes)}, over ${scheme}`);
    const disk = (references ??= await hashOnDisk(root, files, stop));

    const paths = files.map((file) => file.path);
    const smallCalls = await measureSmallCalls(client, paths, stop);
    await client.meter({}, { signal: stop });

    const ours = { provider: scheme, openWindow: rmaWindows(engine, client), results: [] as PullResult[] };
    const socketUrl = urls.slice(index + 1, index + 2).filter(isSocket);
    const theirs = socketUrl.map((socket) => ({
      provider: socket.replace(/^net\+(\w+).*/, "net $1"),
      openWindow: socketWindows(socket),
      results: [] as PullResult[],
    }));
    // Where there is something to compare with, each comes first once and last once, so that neither finds the warmer
    // caches.
    const turns = theirs.length === 0 ? [ours] : [ours, ...theirs, ...theirs, ours];
    for (const { provider, openWindow, results } of turns)
      results.push(await pullAll(openWindow, files, disk, `pulling over ${provider}`, stop));
    const rma = await client.meter({}, { signal: stop });

    const measured = { provider: scheme, files: files.length, pulled: mean(ours.results), smallCalls, rma };
    measurements.push(measured);
    for (const { provider, results } of theirs)
      measurements.push({ provider, files: files.length, pulled: mean(results), comparedWith: measured });
    problems.push(...[ours, ...theirs].flatMap(({ results }) => results.flatMap((one) => one.problems)));
  }

  console.log(`\n${formatTable(measurements)}\n\n${legend}`);
  if (measurements.some(({ comparedWith }) => comparedWith !== undefined)) console.log(comparisonLegend);
  for (const line of measurements.flatMap(formatLongest)) console.log(line);
  for (const problem of problems.slice(0, shownProblems)) console.error(problem);
  if (problems.length > shownProblems) console.error(`… and ${problems.length - shownProblems} more`);
  return problems.length === 0 ? 0 : 1;
}

function isSocket(url: string): boolean {
  return url.startsWith("net+");
}

function clientOf(peer: Peer) {
  return peer.client(Files, { timeoutMs: 60_000 });
}

/** Lists the catalog page by page, then asks for each file by itself. */
async function findFiles(client: FilesClient): Promise<RemoteFile[]> {
  const files: RemoteFile[] = [];
  for (let from: number | null = 0; from !== null; ) {
    const page: Awaited<ReturnType<FilesClient["list"]>> = await client.list(
      { from, limit: pageLimit },
      { signal: stop },
    );
    for (const { path } of page.files) {
      const status = await client.stat({ path }, { signal: stop });
      files.push({ path, ...status });
    }
    from = page.next;
  }
  return files;
}

function explain(error: unknown): string {
  if (error instanceof RpcError && error.code === "unavailable")
    return `client: the server is gone: ${error.message}`;
  return `client: ${describe(error)}`;
}
