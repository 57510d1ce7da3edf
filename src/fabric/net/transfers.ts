import { cancelled } from "../inbox-port.ts";
import type { MemRegions } from "../mem-regions.ts";
import type { Extent, TransferOp } from "../port.ts";
import { ExtentRun } from "./extent-run.ts";
import {
  extentBytes,
  FrameFault,
  frameKind,
  headerBytes,
  mostRequests,
  mostTransferBytes,
  notificationBytes,
  readExtents,
  withNotification,
  writeExtents,
} from "./frame.ts";
import type { FrameWriter } from "./frame-writer.ts";

/** What the connection reports about transfers. */
export interface TransferOwner {
  readonly memory: MemRegions;
  endTransfer(token: number, status: number, moved: number): void;
  deliverPutNotification(notification: bigint, bytes: number): void;
}

/** A transfer that this side asks for. */
interface Asked {
  readonly op: TransferOp;
  readonly address: number;
  readonly token: number;
  readonly extents: readonly Extent[];
  readonly run: ExtentRun;
  readonly notification: bigint | undefined;
  /** Its listener is notified of its end: no operation touches its memory after that. */
  settled: boolean;
}

/** A transfer that the peer asks for. */
interface Served {
  readonly op: TransferOp;
  readonly run: ExtentRun;
  readonly notification: bigint | undefined;
  status: number;
}

/**
 * The transfers of one connection, in both directions. A get is a request, and the peer's port answers with pieces and
 * an end. A put is a request followed by pieces, and the peer's port answers with an end. The side that owns the memory
 * checks key, rights and bounds: all of them first, and again before each piece.
 */
export class Transfers {
  readonly #owner: TransferOwner;
  readonly #writer: FrameWriter;
  /** Asked for by this side and not begun, oldest first. */
  #waiting: Asked[] = [];
  /** Begun by this side, by the number of the request. */
  readonly #begun = new Map<number, Asked>();
  readonly #served = new Map<number, Served>();
  /** Puts of this side and answers to gets that have bytes to send. They take turns. */
  readonly #sending: { readonly request: number; readonly transfer: Asked | Served }[] = [];
  /** Ends of served transfers that are not written yet. */
  readonly #ends: { readonly request: number; readonly status: number }[] = [];
  #lastRequest = 0;

  constructor(owner: TransferOwner, writer: FrameWriter) {
    this.#owner = owner;
    this.#writer = writer;
  }

  /** Either side has asked for one: most connections carry messages alone. */
  isUsed = false;

  get waiting(): number {
    return this.#waiting.length;
  }

  /** Whether something waits to be written. */
  get hasWork(): boolean {
    return (
      this.#ends.length > 0 ||
      this.#sending.length > 0 ||
      (this.#waiting.length > 0 && this.#begun.size < mostRequests)
    );
  }

  ask(
    op: TransferOp,
    address: number,
    token: number,
    extents: readonly Extent[],
    notification: bigint | undefined,
  ): void {
    this.isUsed = true;
    const { memory } = this.#owner;
    // The caller may use the list again.
    const own = extents.slice();
    const run = new ExtentRun(
      own.map(({ local, offset, bytes }) => ({ bytes, find: () => memory.own(local, offset, bytes) })),
    );
    this.#waiting.push({ op, address, token, extents: own, run, notification, settled: false });
  }

  /** Ends the transfers that this side asked for at an address; without an address, all of them. */
  abandon(status: number, address?: number): void {
    const isMeant = (asked: Asked) => address === undefined || asked.address === address;
    const dropped = this.#waiting.filter(isMeant);
    this.#waiting = this.#waiting.filter((asked) => !isMeant(asked));
    for (const asked of [...this.#begun.values(), ...dropped])
      if (isMeant(asked)) this.#settle(asked, status);
  }

  #settle(asked: Asked, status: number): void {
    if (asked.settled) return;
    asked.settled = true;
    this.#owner.endTransfer(asked.token, status, asked.op === "read" || status === 0 ? asked.run.moved : 0);
  }

  // ---- what is written ----------------------------------------------------------------------------------------------

  /** Writes ends and requests. They are short, and others wait for them. */
  writeShort(): void {
    const writer = this.#writer;
    for (const { request, status } of this.#ends.splice(0)) writer.begin(frameKind.done, 0, request, status);
    while (writer.hasRoom && this.#waiting.length > 0 && this.#begun.size < mostRequests)
      this.#begin(this.#waiting.shift() as Asked);
  }

  /** Writes one piece of the next transfer in turn. Returns false if no transfer waits. */
  writePiece(): boolean {
    const next = this.#sending.shift();
    if (next === undefined) return false;
    const { request, transfer } = next;
    const isPut = "token" in transfer;
    const { run } = transfer;
    const bytes = this.#writer.pieceBytes(run.left);
    const buffer = this.#writer.begin(isPut ? frameKind.putBytes : frameKind.gotBytes, bytes, request, 0);
    const at = this.#writer.used - bytes;
    const status = isPut && transfer.settled ? cancelled : run.copyTo(buffer.subarray(at, at + bytes));
    if (status !== 0) {
      this.#writer.takeBack(bytes);
      if (isPut) this.#writer.begin(frameKind.putBytes, 0, request, status);
      else this.#end(request, status);
    } else if (run.left > 0) this.#sending.push(next);
    else if (!isPut) this.#end(request, 0);
    return true;
  }

  #begin(asked: Asked): void {
    const { op, extents, notification } = asked;
    let request = this.#lastRequest;
    do request = (request + 1) >>> 0;
    while (this.#begun.has(request));
    this.#lastRequest = request;
    this.#begun.set(request, asked);
    const flags = notification === undefined ? 0 : withNotification;
    const bodyBytes = extents.length * extentBytes + flags * notificationBytes;
    const kind = op === "read" ? frameKind.get : frameKind.put;
    const buffer = this.#writer.begin(kind, bodyBytes, request, extents.length, flags);
    let at = this.#writer.used - bodyBytes;
    if (notification !== undefined) at = buffer.writeBigUInt64LE(notification, at);
    writeExtents(buffer, at, extents);
    if (op === "write") this.#sending.push({ request, transfer: asked });
  }

  #end(request: number, status: number): void {
    this.#served.delete(request);
    this.#ends.push({ request, status });
  }

  // ---- what arrives -------------------------------------------------------------------------------------------------

  /** A request of the peer. */
  onRequest(kind: number, request: number, count: number, flags: number, bytes: Buffer, at: number): void {
    this.isUsed = true;
    if (this.#served.size + this.#ends.length >= mostRequests)
      throw new FrameFault("it asks for too much at once");
    if (this.#served.has(request)) throw new FrameFault(`request ${request} is under way`);
    let from = at + headerBytes;
    const notification = flags === withNotification ? bytes.readBigUInt64LE(from) : undefined;
    if (notification !== undefined) from += notificationBytes;
    const op = kind === frameKind.get ? "read" : "write";
    const { memory } = this.#owner;
    const extents = readExtents(bytes, from, count);
    const run = new ExtentRun(
      extents.map((extent) => ({ bytes: extent.bytes, find: () => memory.lent(op, extent) })),
    );
    if (run.total > mostTransferBytes) throw new FrameFault(`a transfer has ${run.total} bytes`);
    const served: Served = { op, run, notification, status: run.check() };
    // A peer without a key may ask for many bytes, and then send none.
    if (served.status !== 0) run.drop();
    this.#served.set(request, served);
    if (op === "write") return;
    if (served.status === 0) this.#sending.push({ request, transfer: served });
    else this.#end(request, served.status);
  }

  /** Bytes of a put of the peer. */
  onPutBytes(request: number, word: number, bytes: Uint8Array): void {
    const served = this.#served.get(request);
    if (served?.op !== "write") throw new FrameFault(`bytes came for request ${request}, which is no put`);
    const { run, notification } = served;
    if (bytes.byteLength > run.left) throw new FrameFault("a put has more bytes than it announced");
    if (word !== 0) {
      served.status = word;
      return this.#end(request, word);
    }
    if (served.status === 0) served.status = run.copyFrom(bytes);
    // A refused transfer is still counted, because its end is answered.
    if (served.status !== 0) run.skip(bytes.byteLength);
    if (run.left > 0) return;
    if (served.status === 0 && notification !== undefined)
      this.#owner.deliverPutNotification(notification, run.total);
    this.#end(request, served.status);
  }

  /** Bytes that this side asked for. */
  onGotBytes(request: number, bytes: Uint8Array): void {
    const asked = this.#begun.get(request);
    if (asked?.op !== "read") throw new FrameFault(`bytes came for request ${request}, which is no get`);
    const { run } = asked;
    if (bytes.byteLength > run.left)
      throw new FrameFault("a get is answered with more bytes than it asked for");
    if (asked.settled) return run.skip(bytes.byteLength);
    const status = run.copyFrom(bytes);
    if (status !== 0) {
      this.#settle(asked, status);
      run.skip(bytes.byteLength);
    }
  }

  /** A transfer of this side has ended at the peer. */
  onDone(request: number, status: number): void {
    const asked = this.#begun.get(request);
    if (asked === undefined) throw new FrameFault(`request ${request} ended, which was never made`);
    if (status === 0 && asked.run.left > 0)
      throw new FrameFault(`request ${request} ended before its bytes came`);
    this.#begun.delete(request);
    this.#settle(asked, status);
  }
}
