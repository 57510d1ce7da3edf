// Long data that travels compressed, in a field of `bytes()`. The schema bounds what it may become.
// Run it with `node build/examples/recipes/compressed-field.js [url]`.
import { promisify } from "node:util";
import { deflate, inflate } from "node:zlib";
import { bytes, Engine, implement, service, unary } from "cinnabar";
import { z } from "zod";

const Row = z.object({ id: z.int(), name: z.string() });
const Packed = z.object({
  plainBytes: z
    .int()
    .min(1)
    .max(2 ** 26),
  packed: bytes(),
});

const Tables = service("tables.v1", {
  load: unary({ input: z.object({ rows: z.int().max(100_000) }), output: Packed, idempotent: true }),
});

async function pack(value: unknown): Promise<z.infer<typeof Packed>> {
  const json = Buffer.from(JSON.stringify(value));
  return { plainBytes: json.byteLength, packed: await promisify(deflate)(json) };
}

async function unpack<S extends z.ZodType>(
  schema: S,
  { plainBytes, packed }: z.infer<typeof Packed>,
): Promise<z.infer<S>> {
  // Without a limit a few packed bytes could become gigabytes.
  const json = await promisify(inflate)(packed, { maxOutputLength: plainBytes });
  return schema.parse(JSON.parse(json.toString()));
}

const url = process.argv[2] ?? `shm://tables-${process.pid}`;
const tables = implement(Tables, {
  load: ({ rows }) => pack(Array.from({ length: rows }, (_, id) => ({ id, name: `row ${id % 97}` }))),
});
await using server = await Engine.open({ listen: url, serve: [tables] });
await using engine = await Engine.open();
const client = (await engine.connect(server.urls[0] ?? url)).client(Tables);

const answer = await client.load({ rows: 20_000 });
const rows = await unpack(z.array(Row), answer);
console.log(`${rows.length} rows, the last is "${rows.at(-1)?.name}"`);
console.log(
  answer.packed.byteLength * 4 < answer.plainBytes ? "less than a quarter travelled" : "hardly smaller",
);
const bomb = { plainBytes: 100, packed: answer.packed };
console.log(
  await unpack(z.array(Row), bomb).catch((error: NodeJS.ErrnoException) => `refused: ${error.code}`),
);
