// Upload of a file of any length, with progress, a checksum and no trace of one that was cut off.
// Run it with `node build/examples/recipes/upload-file.js [url]`.
import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { mkdtemp, open, readdir, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { Readable } from "node:stream";
import { Engine, implement, service, unary } from "cinnabar";
import { BulkStream, bulkStream, readable } from "cinnabar-bulk";
import { z } from "zod";

const Files = service("files.v1", {
  store: unary({
    input: z.object({ name: z.string().regex(/^[\w.-]+$/), data: bulkStream("read") }),
    output: z.object({ bytes: z.int(), sha256: z.string() }),
    errors: { TooLong: z.object({ maxBytes: z.int() }) },
  }),
});

const folder = await mkdtemp(join(tmpdir(), "stored-"));
const maxBytes = 32 << 20;
const files = implement(Files, {
  async store({ name, data }, call) {
    const partial = join(folder, `.${name}.${call.id}`);
    const hash = createHash("sha256");
    let bytes = 0;
    try {
      await using file = await open(partial, "wx");
      for await (const piece of readable(call, data)) {
        bytes += piece.byteLength;
        if (bytes > maxBytes) return call.fail("TooLong", { maxBytes });
        hash.update(piece);
        await file.write(piece);
      }
      await file.sync();
      await rename(partial, join(folder, name));
    } finally {
      // Still there when the upload was cut off or too long.
      await rm(partial, { force: true });
    }
    return { bytes, sha256: hash.digest("hex") };
  },
});

const url = process.argv[2] ?? `shm://files-${process.pid}`;
await using server = await Engine.open({ listen: url, serve: [files] });
await using engine = await Engine.open();
const client = (await engine.connect(server.urls[0] ?? url)).client(Files, { timeoutMs: 600_000 });

/** Sends a file. `onProgress` gets the bytes that the server has room for. */
async function upload(path: string, onProgress: (bytes: number) => void = () => {}) {
  const data = new BulkStream(engine, "read");
  const answer = client.store.result({ name: basename(path), data });
  let sent = 0;
  const count = new TransformStream<Uint8Array, Uint8Array>({
    transform(piece, controller) {
      controller.enqueue(piece);
      onProgress((sent += piece.byteLength));
    },
  });
  const pieces = Readable.toWeb(
    createReadStream(path, { highWaterMark: 1 << 20 }),
  ) as ReadableStream<Uint8Array>;
  // The answer says why, if the server stops reading.
  await pieces
    .pipeThrough(count)
    .pipeTo(data.writable)
    .catch(() => {});
  return answer;
}

const source = await mkdtemp(join(tmpdir(), "source-"));
try {
  const content = Buffer.alloc(24 << 20, "all work and no play ");
  await writeFile(join(source, "long.txt"), content);
  let last = 0;
  const stored = await upload(join(source, "long.txt"), (bytes) => {
    last = bytes;
  });
  if (stored.ok) {
    const isSame = stored.value.sha256 === createHash("sha256").update(content).digest("hex");
    console.log(`${stored.value.bytes} bytes, ${last} sent, ${isSame ? "as sent" : "not as sent"}`);
  }

  await writeFile(join(source, "longer.txt"), Buffer.alloc(40 << 20));
  const refused = await upload(join(source, "longer.txt"));
  if (!refused.ok) console.log(`refused: ${refused.error.reason}`);
  console.log(`stored: ${(await readdir(folder)).join(" ")}`);
} finally {
  for (const made of [source, folder]) await rm(made, { recursive: true });
}
