import type { ReadableStream } from "node:stream/web";

/** The part of a byte stream's controller that Node's types lack. */
interface ByteController {
  readonly byobRequest: { readonly view: Uint8Array | null; respond(bytes: number): void } | null;
  close(): void;
  enqueue(bytes: Uint8Array): void;
}

/** The source of a readable stream. */
export interface ChunkSource {
  /**
   * The unread bytes of the oldest chunk, at least one; undefined after the last. Rejects when the stream has failed.
   */
  peek(): Promise<Uint8Array | undefined>;
  /** `bytes` of them were copied out. A used chunk is returned to the writer. */
  use(bytes: number): void;
  /** The reader cancels. */
  cancel(reason: unknown): void;
}

/** The source's access to its stream. */
export interface ReadableControl {
  /** Fails the stream now, even without a reader. */
  fail(error: unknown): void;
}

/** Node's module. It loads with the first stream, since it takes long. */
export function webStreams(): typeof import("node:stream/web") {
  return process.getBuiltinModule("node:stream/web");
}

/**
 * A readable byte stream over chunks. It requests no chunk before the first read. A reader with its own buffer gets the
 * bytes copied into it.
 */
export function chunkReadable(open: (control: ReadableControl) => ChunkSource): ReadableStream<Uint8Array> {
  let source!: ChunkSource;
  const { ReadableStream } = webStreams();
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
    // The stream transfers the buffer, so it needs a copy.
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
  // A reader that waits with its own buffer needs a separate answer.
  controller.byobRequest?.respond(0);
}
