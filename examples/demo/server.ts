// The serving process: `node build/examples/demo/server.js [--compare] FOLDER [ENTRY …]`.
import { Engine } from "cinnabar";
import { readCatalog, type Skipped } from "./catalog.ts";
import { FileReader } from "./file-reader.ts";
import { serveFiles } from "./file-server.ts";
import { aborted, describe, stopSignal } from "./lifetime.ts";
import { serveSockets } from "./socket-server.ts";

/** What the server sends to its parent once it serves. */
export interface Announcement {
  readonly urls: readonly string[];
  /** Where plain sockets serve the same, by the scheme for the comparison; empty unless requested. */
  readonly sockets: Readonly<Record<string, string>>;
  readonly files: number;
  readonly bytes: number;
  readonly skipped: Skipped;
}

const compares = process.argv[2] === "--compare";
const [root = ".", ...entries] = process.argv.slice(compares ? 3 : 2);
const stop = stopSignal();
try {
  const catalog = await readCatalog(root, entries.length === 0 ? [""] : entries, stop);
  await using reader = new FileReader(root);
  await using engine = await Engine.open({
    listen: [`shm://cinnabar-demo-${process.pid}`, "tcp://127.0.0.1:0"],
    serve: [serveFiles(catalog, reader)],
  });
  await using sockets = compares ? await serveSockets(catalog, reader) : undefined;
  announce({
    urls: engine.urls,
    sockets: { ...sockets?.urls },
    files: catalog.files.length,
    bytes: catalog.bytes,
    skipped: catalog.skipped,
  });
  await aborted(stop);
} catch (error) {
  if (!stop.aborted) {
    console.error(`server: ${describe(error)}`);
    process.exitCode = 1;
  }
}

function announce(announcement: Announcement): void {
  if (process.send !== undefined) process.send(announcement);
  else console.log(`listening on ${announcement.urls.join(" ")}, ${announcement.files} files`);
}
