// `node build/examples/demo/main.js [--over shm,tcp] [--compare] [FOLDER]`: starts a server process and a client
// process, and ends both.
import { parseArgs } from "node:util";
import { describe } from "./lifetime.ts";
import { Role } from "./processes.ts";
import { formatBytes, formatCount } from "./report.ts";
import type { Announcement } from "./server.ts";
import { namedSource, nodeInstallation, type Source } from "./source.ts";

const howToLook = [
  "Look at a server while it runs:",
  "  npx cinnabar health URL   whether it serves; ping URL: how long a call takes",
  "  npx cinnabar top URL      calls, latency and memory, of a server that serves inspection(engine)",
  "  npx cinnabar list URL     its methods, and call URL METHOD JSON, with reflection(engine)",
].join("\n");

const interrupted = new Promise<"SIGINT" | "SIGTERM">((resolve) => {
  process.on("SIGINT", resolve);
  process.on("SIGTERM", resolve);
});

try {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      over: { type: "string", default: "shm,tcp" },
      compare: { type: "boolean", default: false },
    },
  });
  if (positionals.length > 1) throw new Error(`One folder at a time, not ${positionals.length}`);
  const source = positionals[0] === undefined ? nodeInstallation() : namedSource(positionals[0]);
  process.exitCode = await serveAndPull(source, values.over.split(","), values.compare);
} catch (error) {
  console.error(`demo: ${describe(error)}`);
  process.exitCode = 1;
}

/** Returns the exit status: the client's, or 128 and the signal's number when a signal ended it. */
async function serveAndPull(source: Source, schemes: readonly string[], compare: boolean): Promise<number> {
  const server = new Role("server", [...(compare ? ["--compare"] : []), source.root, ...source.entries]);
  try {
    const first = await Promise.race([server.announcement<Announcement>(), interrupted]);
    if (first === undefined) throw new Error("the server ended before it could be called");
    if (typeof first === "string") return statusOf(first);
    console.log(`serving ${source.title}: ${describeCatalog(first)}`);
    if (first.files === 0) throw new Error(`there is nothing to serve in ${source.title}`);

    const urls = schemes.flatMap((scheme) => {
      const url = first.urls.find((candidate) => candidate.startsWith(`${scheme}://`));
      if (url === undefined)
        throw new Error(`the server does not listen over ${scheme}, but at ${first.urls.join(", ")}`);
      const socket = first.sockets[scheme];
      return socket === undefined ? [url] : [url, socket];
    });
    const client = new Role("client", [source.root, ...urls]);
    console.log(`server is process ${server.pid}, client is process ${client.pid}`);
    return await watch(server, client);
  } finally {
    await server.end();
  }
}

async function watch(server: Role, client: Role): Promise<number> {
  const serverGone = server.ended.then((ending) => ({ serverEnding: ending }));
  const first = await Promise.race([client.ended, interrupted.then((signal) => ({ signal })), serverGone]);
  if (typeof first === "object" && "signal" in first) {
    await client.end();
    console.log(`\nended by ${first.signal}`);
    return statusOf(first.signal);
  }
  if (typeof first === "object") {
    console.error(`\ndemo: the server process ended with ${first.serverEnding} while the client was at work`);
    // The client notices it by itself and reports it, which is part of the demo.
    const clientEnding = await Promise.race([client.ended, interrupted]);
    if (clientEnding === "SIGINT" || clientEnding === "SIGTERM") await client.end();
    return 1;
  }
  if (first === 0) console.log(`\n${howToLook}`);
  if (typeof first === "number") return first;
  console.error(`demo: the client process was ended by ${first}`);
  return 1;
}

function describeCatalog({ files, bytes, skipped }: Announcement): string {
  const left = Object.entries(skipped).filter(([, count]) => count > 0);
  const notServed = left.map(([why, count]) => `${formatCount(count)} ${why}`).join(", ");
  const served = `${formatCount(files)} files, ${formatBytes(bytes)}`;
  return notServed === "" ? served : `${served} (left out: ${notServed})`;
}

function statusOf(signal: "SIGINT" | "SIGTERM"): number {
  return signal === "SIGINT" ? 130 : 143;
}
