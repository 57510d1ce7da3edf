import {
  bulk,
  bytes,
  clientStream,
  duplexStream,
  error,
  fields,
  implement,
  oneWay,
  serverStream,
  service,
  unary,
} from "cinnabar";
import { z } from "zod";

/** A service with a method of each kind, and values of each form. The guide's examples call it. */
export const Files = service("files.v1", {
  stat: unary({
    input: z.object({ path: z.string(), follow: z.boolean().optional() }),
    output: z.object({ bytes: z.int(), modified: z.date() }),
    errors: { NotFound: error({ data: z.object({ path: z.string() }), code: "not_found" }) },
    idempotent: true,
  }),
  list: serverStream({ input: z.object({ folder: z.string() }), output: z.string() }),
  total: clientStream({ items: z.int(), output: z.bigint() }),
  find: duplexStream({
    input: z.object({ folder: z.string() }),
    items: z.string(),
    output: z.object({ name: z.string(), found: z.boolean() }),
  }),
  touch: oneWay({ input: z.object({ path: z.string() }) }),
  read: unary({ input: fields({ path: z.string(), into: bulk("write") }), output: z.int() }),
  write: unary({ input: fields({ path: z.string(), from: bulk("read") }), output: z.int() }),
  echo: unary({
    input: z.object({
      id: z.bigint(),
      at: z.date(),
      tags: z.set(z.string()),
      left: z.map(z.string(), z.int()),
      data: bytes(),
      size: z.union([z.literal("all"), z.object({ from: z.int(), to: z.int() })]),
    }),
    output: z.unknown(),
  }),
  wait: unary({ input: z.object({ name: z.string() }), output: z.string() }),
});

export const names = ["a.txt", "b.txt", "c.txt"];

/** Handlers, and what they have noticed. */
export function servedFiles() {
  const touched: string[] = [];
  const written: string[] = [];
  /** Calls that have been given up, by name. */
  const ended: string[] = [];
  const files = implement(Files, {
    stat: ({ path }, call) => {
      if (path === "missing.txt") return call.fail("NotFound", { path });
      call.headers.set("x-server", "one");
      return { bytes: path.length, modified: new Date(0) };
    },
    async *list({ folder }, call) {
      if (folder === "endless") {
        try {
          for (;;) {
            call.signal.throwIfAborted();
            yield "again";
          }
        } finally {
          ended.push(folder);
        }
      }
      yield* names;
    },
    async total(items) {
      let total = 0n;
      for await (const item of items) total += BigInt(item);
      return total;
    },
    async *find(items) {
      for await (const name of items) yield { name, found: names.includes(name) };
    },
    touch: ({ path }) => touched.push(path),
    async read({ path, into }, call) {
      await call.put(Buffer.from(path), into.slice(0, path.length));
      if (path === "broken") throw new Error("the disk is gone");
      return path.length;
    },
    async write({ from }, call) {
      const content = Buffer.from(await call.pull(from, Uint8Array));
      written.push(content.toString());
      return content.length;
    },
    echo: (input) => input,
    wait: ({ name }, call) =>
      new Promise<string>((resolve) => {
        call.signal.addEventListener("abort", () => {
          ended.push(name);
          resolve("");
        });
      }),
  });
  return { files, touched, written, ended };
}
