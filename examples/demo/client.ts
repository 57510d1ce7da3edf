// The pulling process: `node build/examples/demo/client.js FOLDER URL …`; the folder is where the reference hashes are taken.
import { Engine, type Peer, RpcError } from "cinnabar";
import { Files } from "./contract.ts";
import { describe, stopSignal } from "./lifetime.ts";
import { pullAll } from "./puller.ts";
import { hashOnDisk, type References } from "./reference.ts";
import { formatBytes, formatCount, formatTable, legend, type Measurement } from "./report.ts";
import { measureSmallCalls } from "./small-calls.ts";

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

/** Does everything over each URL in turn. Returns the exit status. */
async function run(): Promise<number> {
  await using engine = await Engine.open();
  const measurements: Measurement[] = [];
  const problems: string[] = [];
  let references: References | undefined;

  for (const url of urls) {
    const scheme = url.slice(0, url.indexOf(":"));
    const client = clientOf(await engine.connect(url));
    const files = await findFiles(client);
    const bytes = files.reduce((sum, file) => sum + file.bytes, 0);
    console.log(`found ${formatCount(files.length)} files, ${formatBytes(bytes)}, over ${scheme}`);
    references ??= await hashOnDisk(root, files, stop);

    const paths = files.map((file) => file.path);
    const smallCalls = await measureSmallCalls(client, paths, stop);
    await client.meter({}, { signal: stop });
    const pulled = await pullAll(engine, client, files, references, `pulling over ${scheme}`, stop);
    const rma = await client.meter({}, { signal: stop });
    const { verified, elapsedMs: pullMs } = pulled;
    measurements.push({
      provider: scheme,
      smallCalls,
      files: files.length,
      bytes: pulled.bytes,
      verified,
      pullMs,
      rma,
    });
    problems.push(...pulled.problems);
  }

  console.log(`\n${formatTable(measurements)}\n\n${legend}`);
  for (const problem of problems.slice(0, shownProblems)) console.error(problem);
  if (problems.length > shownProblems) console.error(`… and ${problems.length - shownProblems} more`);
  return problems.length === 0 ? 0 : 1;
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
