import type { Port } from "../fabric/port.ts";

/** Bytes over which messages are counted: many chunks, a few milliseconds. */
const spanBytes = 8 * 1024 * 1024;
/** The most messages of a span that long transfers cause themselves: calls of 4 MiB and more cause two. */
const maxOwnMessages = 2;
/** Transfers up to this length wait longer for a chunk of another transfer than they take themselves. */
const shortBytes = 64 * 1024;

/**
 * Tells whether messages or short transfers share a port with long transfers. They are counted over bytes moved, not
 * over time, so that fast and slow fabrics are judged alike.
 */
export class Contention {
  readonly #port: Port;
  /** Messages that the port had received when the span began. */
  #received: number;
  #shortTransfers = 0;
  /** Bytes posted since the span began. */
  #bytes = 0;
  #isShared = false;

  constructor(port: Port) {
    this.#port = port;
    this.#received = port.received;
  }

  /** True from the third message or short transfer of a span on, until a span has had fewer. */
  get isShared(): boolean {
    if (this.#exceeds()) this.#begin(true);
    return this.#isShared;
  }

  /** `bytes` bytes of transfers are posted. */
  onPosted(bytes: number): void {
    this.#bytes += bytes;
    if (this.#bytes >= spanBytes && !this.#exceeds()) this.#begin(false);
  }

  /** A transfer of `bytes` bytes begins. */
  onTransfer(bytes: number): void {
    if (bytes <= shortBytes) this.#shortTransfers++;
  }

  #exceeds(): boolean {
    return this.#port.received - this.#received + this.#shortTransfers > maxOwnMessages;
  }

  #begin(isShared: boolean): void {
    this.#isShared = isShared;
    this.#received = this.#port.received;
    this.#shortTransfers = 0;
    this.#bytes = 0;
  }
}
