import { openConnectingPort } from "../../../src/fabric/open-port.ts";
import { access, defaultLayout, type Port, type PortSink } from "../../../src/fabric/port.ts";
import { locate } from "../../../src/fabric/target.ts";
import type { RegionSegment } from "../../../src/wire/region-descriptor.ts";

const sink: PortSink = { onMessage() {}, onMessageLost() {}, onPutNotification() {}, onPeerGone() {} };

/** A dishonest peer: a port without an engine, which writes with keys that somebody else was given. */
export class RawWriter {
  readonly #port: Port;
  readonly #address: number;

  private constructor(port: Port, address: number) {
    this.#port = port;
    this.#address = address;
  }

  /** To the engine that listens at `url`. */
  static async open(url: string): Promise<RawWriter> {
    const target = await locate(url);
    const port = await openConnectingPort(target, defaultLayout);
    return new RawWriter(port, port.admit((await port.route(target)).address));
  }

  /**
   * Writes `value` to `bytes` bytes from the beginning of a segment. Gives 0, or libfabric's number of the error. The
   * target must run meanwhile, if it is on this thread: this waits by turns of the event loop.
   */
  async write({ key, address }: RegionSegment, bytes: number, value: number): Promise<number> {
    const source = new Uint8Array(bytes).fill(value);
    const local = this.#port.register(source.buffer, 0, bytes, access.local);
    let status: number | undefined;
    this.#port.transfer("write", this.#address, [{ local, offset: 0, bytes, key, remote: address }], {
      onTransferred(ended) {
        status = ended;
      },
    });
    while (status === undefined) {
      this.#port.progress(0, sink);
      if (status === undefined) await new Promise(setImmediate);
    }
    this.#port.deregister(local.index);
    return status;
  }

  close(): void {
    this.#port.close();
  }
}
