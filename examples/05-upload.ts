// A client stream: an upload with progress. The server sets the pace.
// Run it with `node build/examples/05-upload.js [url]`.
import { createHash } from "node:crypto";
import { setImmediate } from "node:timers/promises";
import { bytes, clientStream, Engine, implement, service } from "cinnabar";
import { z } from "zod";

const Files = service("files.v1", {
  upload: clientStream({
    input: z.object({ name: z.string(), bytes: z.int() }),
    items: bytes(),
    output: z.object({ name: z.string(), bytes: z.int(), sha256: z.string() }),
    errors: { TooLong: z.object({ most: z.int() }) },
  }),
});

const url = process.argv[2] ?? `shm://files-${process.pid}`;
await using server = await Engine.open({
  listen: [url],
  serve: [
    implement(Files, {
      async upload(pieces, call) {
        const most = 64 * 1024 * 1024;
        if (call.input.bytes > most) return call.fail("TooLong", { most });
        const hash = createHash("sha256");
        let total = 0;
        for await (const piece of pieces) {
          hash.update(piece);
          total += piece.byteLength;
          await setImmediate(); // a slow disk
        }
        return { name: call.input.name, bytes: total, sha256: hash.digest("hex") };
      },
    }),
  ],
});

await using engine = await Engine.open();
const files = (await engine.connect(server.urls[0] ?? url)).client(Files);

const content = new Uint8Array(8 * 1024 * 1024).map((_, i) => i * 31);
async function* pieces(): AsyncGenerator<Uint8Array> {
  const piece = 64 * 1024;
  for (let sent = 0; sent < content.byteLength; sent += piece) {
    // The next piece is asked for when the server has room: what is done here is what has left.
    if (sent % (2 * 1024 * 1024) === 0) console.log(`${(100 * sent) / content.byteLength} %`);
    yield content.subarray(sent, sent + piece);
  }
}
const stored = await files.upload({ name: "a.bin", bytes: content.byteLength }, pieces());
const sha256 = createHash("sha256").update(content).digest("hex");
console.log(
  `${stored.name} has ${stored.bytes} bytes, ${stored.sha256 === sha256 ? "as sent" : "not as sent"}`,
);

const refused = await files.upload.result({ name: "b.bin", bytes: 1e9 }, []);
if (!refused.ok) console.log(`refused: ${refused.error.reason}`);
