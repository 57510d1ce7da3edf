import { Duplex } from "node:stream";

/**
 * The stream under a TLS exchange. Bytes that TLS writes go to `onFlight`; bytes of the peer go to `receive`. The owner
 * bounds the bytes; the stream has no backpressure.
 */
export class FlightStream extends Duplex {
  readonly #onFlight: (bytes: Buffer) => void;

  constructor(onFlight: (bytes: Buffer) => void) {
    super();
    this.#onFlight = onFlight;
    // TLS reports errors itself. Without a listener an error would end the process.
    this.on("error", () => {});
  }

  receive(bytes: Uint8Array): void {
    if (!this.destroyed) this.push(Buffer.from(bytes));
  }

  override _read(): void {}

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.#onFlight(chunk);
    done();
  }

  override _writev(chunks: readonly { readonly chunk: Buffer }[], done: () => void): void {
    this.#onFlight(Buffer.concat(chunks.map(({ chunk }) => chunk)));
    done();
  }
}
