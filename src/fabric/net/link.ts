import type { Socket } from "node:net";
import { completion, firstParked } from "../completion-ring.ts";
import type { Entry } from "../inbox-port.ts";
import { FrameFault, frameKind, headerBytes, magic, version } from "./frame.ts";
import { FrameReader, type FrameSink } from "./frame-reader.ts";
import { FrameWriter, type WriteBuffers } from "./frame-writer.ts";
import { type TransferOwner, Transfers } from "./transfers.ts";

/** What a connection needs of its port. */
export interface LinkOwner extends TransferOwner {
  readonly slab: Buffer;
  readonly slotBytes: number;
  readonly buffers: WriteBuffers;
  /** How much waits for the port's next turn, and how much the port takes at most. */
  readonly unread: number;
  readonly receiveDepth: number;
  /** The number of the port's turn: each takes what the turns before have left in its inbox. */
  readonly turn: number;
  /** A connection is being read. It wakes the port by `wakeNow` afterwards. */
  wakesItself: boolean;
  wakeNow(): void;
  /** A message has come, or a transfer has ended. */
  arrive(entry: Entry): void;
  endSend(token: number, status: number): void;
  /** Takes a message out of its slot, where slots are short. Returns its token, or -1. */
  park(slot: number): number;
  /** The peer has said hello. `address` is the return address of this side, or empty. */
  onHello(link: Link, address: Buffer): void;
  /** Bytes are left to read, or the connection has ended. */
  onReadable(link: Link): void;
  /** The connection has ended before the peer's hello. */
  onUnborn(link: Link): void;
  /** Frames wait for the end of this turn. */
  flushSoon(link: Link): void;
}

/** A message that the socket does not take yet. */
interface WaitingMessage {
  readonly address: number;
  /** Its slot, or the token under which it was parked. */
  readonly token: number;
  readonly bytes: Uint8Array;
}

/** Bytes that a full port leaves unread before the socket pauses. Then the peer meets backpressure. */
const mostUnreadBytes = 64 * 1024;
/** Bytes that the messages of one connection hold before the port's next turn. */
const mostInboxBytes = 128 * 1024;
const mostParked = 16;
/** How long the last bytes of a connection may take to leave. */
const lastBytesMs = 1000;

/** One connection with a peer: messages and transfers in frames, over one socket. */
export class Link implements FrameSink {
  /** The port's addresses of the peer behind it. */
  readonly addresses = new Set<number>();
  readonly isDialed: boolean;
  readonly socket: Socket;
  readonly transfers: Transfers;
  /** The peer has said hello. */
  isGreeted = false;
  /** It is in the port's list of connections to read. */
  isListed = false;
  /** Its frames wait for the end of the turn. */
  isDirty = false;
  /** Ends it where it has no session for too long. Its port sets it. */
  timer: NodeJS.Timeout | undefined;
  /** The link neither sends nor reads. */
  isOver = false;
  /** Why it ended; undefined where the peer closed it. */
  error: NodeJS.ErrnoException | FrameFault | undefined;
  readonly #owner: LinkOwner;
  readonly #reader: FrameReader;
  readonly writer: FrameWriter;
  #waiting: WaitingMessage[] = [];
  #parked = 0;
  #chunks: Buffer[] = [];
  #at = 0;
  /** Bytes that have come and that no turn has taken. */
  unreadBytes = 0;
  /** How often bytes have come. */
  timesHeard = 0;
  /** The port takes no more of this connection before its next turn. */
  isFull = false;
  /** Bytes that this connection's messages hold in the port's inbox, since this turn of the port. */
  #inboxBytes = 0;
  #turn = 0;
  /** No more bytes come. */
  hasEnded = false;

  /** `readsInPlace`: the socket calls `onRead`, and has no "data". */
  constructor(owner: LinkOwner, socket: Socket, isDialed: boolean, readsInPlace = false) {
    this.#owner = owner;
    this.socket = socket;
    this.isDialed = isDialed;
    this.#reader = new FrameReader(owner.slotBytes, this);
    this.writer = new FrameWriter(socket, owner.buffers, () => this.#write());
    this.transfers = new Transfers(owner, this.writer);
    socket.setNoDelay(true);
    if (readsInPlace) socket.resume();
    else socket.on("data", (chunk: Buffer) => this.onRead(chunk, chunk.byteLength));
    socket.on("error", (error: NodeJS.ErrnoException) => {
      this.error ??= error;
    });
    socket.on("end", () => this.#onEnd());
    socket.on("close", () => this.#onEnd());
  }

  /** Messages and transfers that the peer does not take yet. */
  get waiting(): number {
    return this.#waiting.length + this.transfers.waiting;
  }

  /** The first frame. `address`: the return address of the side that connected. */
  sayHello(address: Uint8Array): void {
    const buffer = this.writer.begin(frameKind.hello, address.byteLength, magic, version);
    buffer.set(address, this.writer.used - address.byteLength);
    this.writer.flush();
  }

  /** True: the message was taken, and its slot is free. */
  send(address: number, slot: number, bytes: number): boolean {
    const message = this.#owner.slab.subarray(slot, slot + bytes);
    if (this.#waiting.length === 0 && this.writer.hasRoom) {
      this.writer.begin(frameKind.message, bytes, 0, 0).set(message, this.writer.used - bytes);
      this.#owner.flushSoon(this);
      return true;
    }
    this.writer.isAwaited = true;
    const parked = this.#parked < mostParked ? this.#owner.park(slot) : -1;
    if (parked < 0) this.#waiting.push({ address, token: slot, bytes: message });
    else {
      this.#parked++;
      this.#waiting.push({ address, token: parked, bytes: Uint8Array.from(message) });
    }
    return false;
  }

  /** Writes the waiting frames, as far as the socket takes them. */
  #write(): void {
    if (this.isOver) return;
    const writer = this.writer;
    if (writer.hasRoom) this.transfers.writeShort();
    while (writer.hasRoom && this.#waiting.length > 0) {
      const { token, bytes } = this.#waiting.shift() as WaitingMessage;
      const buffer = writer.begin(frameKind.message, bytes.byteLength, 0, 0);
      buffer.set(bytes, writer.used - bytes.byteLength);
      this.#end(token, 0);
    }
    while (writer.hasRoom && this.transfers.writePiece());
    writer.isAwaited = this.#waiting.length > 0 || this.transfers.hasWork;
    this.#owner.flushSoon(this);
  }

  #end(token: number, status: number): void {
    if (token >= firstParked) this.#parked--;
    this.#owner.endSend(token, status);
  }

  /** This side has asked for a transfer. */
  goOn(): void {
    this.#write();
  }

  // ---- what arrives -------------------------------------------------------------------------------------------------

  /**
   * The socket has read `bytes` to `memory`, and may overwrite them when this returns. Bytes of transfers are in place
   * at once.
   * Entries for the layers above wait in the inbox for the next turn. A socket that pauses for each turn would leave
   * the kernel's buffer full, and TCP slow.
   */
  onRead(memory: Uint8Array, bytes: number): true {
    if (this.isOver) return true;
    const chunk = memory.subarray(0, bytes) as Buffer;
    this.timesHeard++;
    this.#chunks.push(chunk);
    this.unreadBytes += chunk.byteLength;
    const owner = this.#owner;
    owner.wakesItself = true;
    this.read();
    owner.wakesItself = false;
    const last = this.#chunks.length - 1;
    if (this.#chunks[last] === chunk) this.#chunks[last] = Buffer.from(chunk);
    if (this.unreadBytes >= mostUnreadBytes) this.socket.pause();
    if (!this.isGreeted) return true;
    if (this.unreadBytes > 0) owner.onReadable(this);
    else if (owner.unread > 0) owner.wakeNow();
    return true;
  }

  #onEnd(): void {
    this.hasEnded = true;
    if (this.isOver) return;
    if (this.isGreeted) this.#owner.onReadable(this);
    else this.#owner.onUnborn(this);
  }

  /** Reads the bytes that have come, as far as the port takes them. */
  read(): void {
    const owner = this.#owner;
    if (this.#turn !== owner.turn) this.#inboxBytes = 0;
    this.#turn = owner.turn;
    this.isFull = this.isOver || this.#inboxBytes >= mostInboxBytes || owner.unread >= owner.receiveDepth;
    try {
      while (this.#chunks.length > 0) {
        const chunk = this.#chunks[0] as Buffer;
        this.#at = this.#reader.read(chunk, this.#at);
        if (this.#at < chunk.byteLength) break;
        this.#chunks.shift();
        this.#at = 0;
        this.unreadBytes -= chunk.byteLength;
      }
    } catch (error) {
      if (!(error instanceof FrameFault)) throw error;
      this.error = error;
      this.#chunks = [];
      this.unreadBytes = 0;
      this.socket.destroy();
      return;
    }
    if (this.unreadBytes < mostUnreadBytes && this.socket.isPaused()) this.socket.resume();
    if (this.transfers.isUsed && this.transfers.hasWork) this.#write();
  }

  onFrame(bytes: Buffer, at: number, length: number): void {
    const kind = bytes[at + 4] as number;
    const request = bytes.readUInt32LE(at + 8);
    const word = bytes.readUInt32LE(at + 12);
    switch (kind) {
      case frameKind.hello:
        this.isGreeted = true;
        this.#owner.onHello(this, bytes.subarray(at + headerBytes, at + length));
        break;
      case frameKind.message:
        this.#inboxBytes += length - headerBytes;
        this.#owner.arrive({
          kind: completion.message,
          status: 0,
          token: 0,
          bytes: Buffer.from(bytes.subarray(at + headerBytes, at + length)),
        });
        break;
      case frameKind.done:
        this.transfers.onDone(request, word);
        break;
      default:
        this.transfers.onRequest(kind, request, word, bytes[at + 5] as number, bytes, at);
    }
    const { unread, receiveDepth } = this.#owner;
    if (unread >= receiveDepth || this.#inboxBytes >= mostInboxBytes) this.isFull = true;
  }

  onBytes(kind: number, request: number, word: number, bytes: Buffer): void {
    if (kind === frameKind.putBytes) this.transfers.onPutBytes(request, word, bytes);
    else this.transfers.onGotBytes(request, bytes);
    if (this.#owner.unread >= this.#owner.receiveDepth) this.isFull = true;
  }

  // ---- the end ------------------------------------------------------------------------------------------------------

  /** An address is no longer used: the work that waits for it ends. */
  forget(address: number, status: number): void {
    this.addresses.delete(address);
    this.transfers.abandon(status, address);
    this.#drop(status, (message) => message.address === address);
  }

  /** The written frames leave, then the connection ends. */
  close(status: number): void {
    if (this.isOver) return;
    this.writer.flush();
    this.isOver = true;
    this.isFull = true;
    this.socket.unref();
    this.socket.setTimeout(lastBytesMs, () => this.socket.destroy());
    this.socket.end();
    // Its end is read, and the bytes before it are not.
    this.socket.resume();
    this.#release(status);
  }

  /** The connection ends at once. */
  cut(status: number): void {
    this.isOver = true;
    this.isFull = true;
    this.socket.destroy();
    this.#release(status);
  }

  #release(status: number): void {
    this.#chunks = [];
    this.unreadBytes = 0;
    this.transfers.abandon(status);
    this.#drop(status, () => true);
  }

  #drop(status: number, isMeant: (message: WaitingMessage) => boolean): void {
    const dropped = this.#waiting.filter(isMeant);
    this.#waiting = this.#waiting.filter((message) => !isMeant(message));
    for (const { token } of dropped) this.#end(token, status);
  }
}
