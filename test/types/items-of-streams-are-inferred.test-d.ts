import { z } from "zod";
import type { ClientOf, HandlersOf } from "../../src/contract/infer.ts";
import type { ClientStreamWriter, DuplexStreamWriter, ItemStream } from "../../src/contract/item-stream.ts";
import { oneWay } from "../../src/contract/one-way.ts";
import { service } from "../../src/contract/service.ts";
import { clientStream, duplexStream, serverStream } from "../../src/contract/stream.ts";
import type { Equal, Expect } from "./expect-type.ts";
import type { ByKind, Context } from "./frames.ts";

const Line = z.object({ at: z.coerce.date(), text: z.string().default("") });
const Logs = service("logs.v1", {
  tail: serverStream({ input: z.object({ file: z.string() }), output: Line, errors: { Gone: z.number() } }),
  all: serverStream({ output: z.string() }),
  append: clientStream({ items: Line, input: z.object({ file: z.string() }), output: z.number() }),
  count: clientStream({ items: z.string() }),
  talk: duplexStream({ items: z.string(), output: z.number() }),
  note: oneWay({ input: z.string() }),
});
type Client = ClientOf<typeof Logs, ByKind>;
declare const client: Client;

// A client receives parsed items, and sends what the schema accepts.
type Parsed = { at: Date; text: string };
export type Tailed = Expect<Equal<ReturnType<Client["tail"]>, ItemStream<Parsed>>>;
export type Item = Expect<
  Equal<Awaited<ReturnType<ReturnType<Client["tail"]>["next"]>>["value"], Parsed | undefined>
>;
export type Appended = Expect<Equal<ReturnType<Client["append"]>, Promise<number>>>;
export type Nothing = Expect<Equal<ReturnType<Client["count"]>, Promise<void>>>;
export type Noted = Expect<Equal<ReturnType<Client["note"]>, Promise<void>>>;
export type Talker = Expect<Equal<ReturnType<Client["talk"]["open"]>, DuplexStreamWriter<string, number>>>;
export type Counter = Expect<Equal<ReturnType<Client["count"]["open"]>, ClientStreamWriter<string, void>>>;

// An input of nothing may be left out.
client.all();
client.count(["a"]);
client.talk(["a"]);
client.talk.open();
client.append({ file: "a" }, [{ at: "2026-01-01" }]);
// @ts-expect-error TS2554 an input that is missing
client.tail();
// @ts-expect-error TS2554 an opening input that is missing
client.append([]);
// @ts-expect-error TS2345/TS2322 an item of the wrong type
client.count([7]);
// @ts-expect-error TS2345 an item of the wrong type, sent by itself
client.talk.open().send(7);
// @ts-expect-error TS2353 an option that only calls have
serverStream({ output: z.string(), replay: true });
// @ts-expect-error TS2345/TS2741 a stream without items
serverStream({});

export const handlers: HandlersOf<typeof Logs, Context> = {
  async *tail({ file }, call) {
    const name: string = file;
    if (name === "") call.fail("Gone", 7);
    // What the schema parses may be left out.
    yield { at: new Date() };
  },
  all: () => ["a", "b"],
  async append(items, call) {
    const file: string = call.input.file;
    let bytes = file.length;
    for await (const { at, text } of items) bytes += at.getTime() + text.length;
    return bytes;
  },
  async count(items) {
    for await (const item of items) item.trim();
  },
  async *talk(items) {
    for await (const item of items) yield item.length;
  },
  note: (text) => text.length,
};

export const wrong: Pick<HandlersOf<typeof Logs, Context>, "all"> = {
  // @ts-expect-error TS2345/TS2322 an item of the wrong type
  async *all() {
    yield 7;
  },
};
