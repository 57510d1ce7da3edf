import { ReadableStream } from "node:stream/web";

/** What Node's types leave out of a byte stream's controller. */
interface ByteController {
  readonly byobRequest: { readonly view: Uint8Array | null; respond(bytes: number): void } | null;
  close(): void;
  enqueue(bytes: Uint8Array): void;
}

/** Where a readable stream's bytes come from. */
export interface ChunkSource {
  /** Bytes of the oldest chunk that have not been used, at least one; undefined after the last. Rejects when the stream has failed. */
  peek(): Promise<Uint8Array | undefined>;
  /** So many of them have been copied out; a chunk that is used up is given back. */
  use(bytes: number): void;
  /** The reader gives up. */
  cancel(reason: unknown): void;
}

/** What of the stream `open` hands to the source. */
export interface ReadableControl {
  /** The stream fails now, whether somebody reads or not. */
  fail(error: unknown): void;
}

/** A byte stream over chunks. It asks for nothing before somebody reads; a reader with a buffer of its own gets the bytes copied into that. */
export function chunkReadable(open: (control: ReadableControl) => ChunkSource): ReadableStream<Uint8Array> {
  let source!: ChunkSource;
  return new ReadableStream({
    type: "bytes",
    start(controller) {
      source = open({ fail: (error) => controller.error(error) });
    },
    async pull(byteController) {
      const controller = byteController as unknown as ByteController;
      const bytes = await source.peek();
      if (bytes === undefined) finish(controller);
      else source.use(deliver(controller, bytes));
    },
    cancel(reason) {
      source.cancel(reason);
    },
  });
}

function deliver(controller: ByteController, bytes: Uint8Array): number {
  const request = controller.byobRequest;
  const view = request?.view;
  if (request == null || view == null) {
    // The stream takes the buffer's memory away, so it must be one of its own.
    controller.enqueue(bytes.slice());
    return bytes.byteLength;
  }
  const count = Math.min(view.byteLength, bytes.byteLength);
  new Uint8Array(view.buffer, view.byteOffset, count).set(bytes.subarray(0, count));
  request.respond(count);
  return count;
}

function finish(controller: ByteController): void {
  controller.close();
  // A reader that waits with its own buffer must be told separately.
  controller.byobRequest?.respond(0);
}
