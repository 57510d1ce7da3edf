import type { Port } from "../fabric/port.ts";

/**
 * Tells whether somebody waits behind the chunks of long transfers: messages of the port, and short transfers. Counted
 * by bytes moved and not by time, so that fast and slow fabrics are judged alike.
 */
export class Company {
  readonly #port: Port;
  /** Messages that the port had received when the span began. */
  #received: number;
  #shortTransfers = 0;
  /** Bytes posted since the span began. */
  #bytes = 0;
  #isThere = false;

  constructor(port: Port) {
    this.#port = port;
    this.#received = port.received;
  }

  /** From the third in a span on, and until a span has had fewer. */
  get isThere(): boolean {
    if (this.#exceeds()) this.#begin(true);
    return this.#isThere;
  }

  /** So many bytes of transfers are posted. */
  onPosted(bytes: number): void {
    this.#bytes += bytes;
    if (this.#bytes >= spanBytes && !this.#exceeds()) this.#begin(false);
  }

  /** A transfer of so many bytes begins. */
  onTransfer(bytes: number): void {
    if (bytes <= shortBytes) this.#shortTransfers++;
  }

  #exceeds(): boolean {
    return this.#port.received - this.#received + this.#shortTransfers > mostOfOneself;
  }

  #begin(isThere: boolean): void {
    this.#isThere = isThere;
    this.#received = this.#port.received;
    this.#shortTransfers = 0;
    this.#bytes = 0;
  }
}

/** Over which messages are counted: many chunks, a few milliseconds. */
const spanBytes = 8 * 1024 * 1024;
/** In a span: calls of 4 MiB and more have so many themselves. A caller of small calls has more. */
const mostOfOneself = 2;
/** What a chunk would hold up for longer than it takes itself. */
const shortBytes = 64 * 1024;
