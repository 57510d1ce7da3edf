import { ReadableStream, WritableStream } from "node:stream/web";

/** The bytes of items as a web stream: what an adapter of `bulkStream` over item streams would do. */
export function readableOf(items: AsyncIterable<Uint8Array>): ReadableStream<Uint8Array> {
  const iterator = items[Symbol.asyncIterator]();
  return new ReadableStream({
    type: "bytes",
    async pull(controller) {
      const { done, value } = await iterator.next();
      if (done === true) controller.close();
      else controller.enqueue(value as Uint8Array<ArrayBuffer>);
    },
    async cancel() {
      await iterator.return?.();
    },
  });
}

/** A web stream whose pieces leave as items. */
export function writableOf(
  send: (item: Uint8Array) => Promise<void>,
  end: () => Promise<unknown>,
): WritableStream<Uint8Array> {
  return new WritableStream<Uint8Array>({
    write: (piece) => send(piece),
    async close() {
      await end();
    },
  });
}

/** The other way round: what is written can be iterated, as the handler of a server stream returns it. */
export function written(): {
  readonly writable: WritableStream<Uint8Array>;
  readonly items: AsyncIterable<Uint8Array>;
} {
  const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>();
  return { writable, items: readable as unknown as AsyncIterable<Uint8Array> };
}
