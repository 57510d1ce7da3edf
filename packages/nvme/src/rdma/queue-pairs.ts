import {
  numericHost,
  type QueuePairAddon,
  queuePairAddon,
  queuePairError,
  queuePairEvent,
  queuePairListenError,
  queuePairWork,
} from "cinnabar/native";
import { RpcError } from "cinnabar/standard";

/** The address of a listener for queue pairs, and the handler of its requests. */
export interface QueuePairListenerOptions {
  /** An address of an RDMA device of this machine, or a name of one. */
  readonly host: string;
  /** The port, in RDMA's own space of ports; 0 takes a free one. */
  readonly port: number;
  /** How many queue pairs there may be at a time. Beyond it, peers are refused. */
  readonly maxPairs: number;
  /** A peer asks for a connection. It waits until `accept` or `close`. */
  readonly onRequest: (pair: QueuePair) => void;
}

/** What is called when posted work is done: with the bytes of it, or undefined where the connection ended before. */
export type WorkDone = (bytes: number | undefined) => void;

/** The memory of a peer for `read` and `write`. The peer sends these fields by its own protocol. */
export interface PeerMemory {
  readonly address: bigint;
  readonly key: number;
}

/** Part of registered memory. */
export interface MemoryPart {
  readonly memory: RegisteredMemory;
  readonly offset: number;
  readonly bytes: number;
}

/**
 * Memory that an RDMA device may use for the messages and transfers of a listener's queue pairs. It is pinned. Peers
 * get no right to it.
 */
export class RegisteredMemory {
  /** All of it, zeroed at first, from the beginning of a page on. */
  readonly buffer: Buffer;
  readonly #addon: QueuePairAddon;
  readonly #listener: number;
  /** @internal */
  readonly number: number;

  /** @internal */
  constructor(addon: QueuePairAddon, listener: number, bytes: number) {
    const memory = addon.allocate(bytes, false);
    if (!(memory instanceof ArrayBuffer)) throw queuePairError(memory);
    const number = addon.registerForQueuePairs(listener, memory);
    if (number < 0) {
      addon.release(memory);
      throw queuePairError({ op: "fi_mr_reg", code: number, bytes });
    }
    this.#addon = addon;
    this.#listener = listener;
    this.number = number;
    this.buffer = Buffer.from(memory);
  }

  /**
   * Gives the memory back to the system; the buffer is empty then. Neither code nor posted work may use it any more.
   */
  release(): void {
    this.#addon.deregisterForQueuePairs(this.#listener, this.number);
    this.#addon.release(this.buffer.buffer as ArrayBuffer);
  }
}

/**
 * A connected RDMA queue pair: messages, and reads and writes of the peer's memory. Work is done in the order of posting,
 * and an error in one part of it ends the connection.
 */
export class QueuePair {
  /** Called once when the connection is over, after the callbacks of all posted work. */
  onEnd: () => void = () => {};
  readonly #addon: QueuePairAddon;
  readonly #listener: number;
  readonly #number: number;
  readonly #forget: () => void;
  readonly #posted = new Map<number, WorkDone>();
  #lastToken = 0;
  #isOver = false;

  /** @internal */
  constructor(addon: QueuePairAddon, listener: number, number: number, forget: () => void) {
    this.#addon = addon;
    this.#listener = listener;
    this.#number = number;
    this.#forget = forget;
  }

  /** The connection has ended, or was refused. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /**
   * Makes the queue pair, so that receives can be posted.
   *
   * @param sends how many sends, reads and writes may be posted at a time
   * @param receives how many receives may be
   * @throws RpcError of origin "fabric" where the device refuses it. The pair is closed then.
   */
  open(sends: number, receives: number): void {
    this.#check("open", this.#addon.openQueuePair(this.#listener, this.#number, sends, receives));
  }

  /**
   * Accepts the connection.
   *
   * @throws RpcError of origin "fabric" if that fails, for example when the peer has gone. The pair is closed then.
   */
  accept(): void {
    this.#check("accept", this.#addon.acceptQueuePair(this.#listener, this.#number));
  }

  /** Takes one message of the peer's, of at most the part's length. A longer one ends the connection. */
  receive(part: MemoryPart, done: WorkDone): void {
    this.#post(queuePairWork.receive, part, done);
  }

  /** Sends a message. The part is free when the peer's device has the message. */
  send(part: MemoryPart, done: WorkDone): void {
    this.#post(queuePairWork.send, part, done);
  }

  /** Fills the part from the peer's memory. */
  read(part: MemoryPart, from: PeerMemory, done: WorkDone): void {
    this.#post(queuePairWork.read, part, done, from);
  }

  /** Writes the part to the peer's memory. What is sent afterwards arrives afterwards. */
  write(part: MemoryPart, to: PeerMemory, done: WorkDone): void {
    this.#post(queuePairWork.write, part, done, to);
  }

  /** Ends the connection, or refuses it. The callbacks of posted work report the end. A second call has no effect. */
  close(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#addon.closeQueuePair(this.#listener, this.#number);
    this.#forget();
    const posted = [...this.#posted.values()];
    this.#posted.clear();
    for (const done of posted) done(undefined);
    this.onEnd();
  }

  /** @internal */
  complete(token: number, bytes: number): void {
    const done = this.#posted.get(token);
    this.#posted.delete(token);
    done?.(bytes);
  }

  #post(work: number, { memory, offset, bytes }: MemoryPart, done: WorkDone, peer?: PeerMemory): void {
    if (this.#isOver) {
      done(undefined);
      return;
    }
    do this.#lastToken = (this.#lastToken + 1) >>> 0;
    while (this.#posted.has(this.#lastToken));
    const token = this.#lastToken;
    this.#posted.set(token, done);
    const at = [this.#listener, this.#number, work, memory.number, offset, bytes, token] as const;
    const status =
      peer === undefined
        ? this.#addon.postToQueuePair(...at)
        : this.#addon.postToQueuePair(...at, peer.address, peer.key);
    // The queue has room for all work that may be posted, so the device has given up the connection.
    if (status < 0) this.close();
  }

  #check(op: string, status: number): void {
    if (status >= 0) return;
    this.close();
    throw queuePairError({ op, code: status });
  }
}

/**
 * Listens at the address of an RDMA device for connected queue pairs of programs that do not use Cinnabar, such as
 * those of a storage protocol. Each message and each transfer is one of the device, without a header. The listener runs
 * on the event loop, and keeps the process alive until `close`.
 */
export class QueuePairListener implements Disposable {
  /** Where it listens. */
  readonly host: string;
  readonly port: number;
  readonly #addon: QueuePairAddon;
  readonly #listener: number;
  readonly #events = new Uint32Array(queuePairEvent.words * queuePairEvent.most);
  readonly #pairs = new Map<number, QueuePair>();
  readonly #onRequest: (pair: QueuePair) => void;
  #isClosed = false;

  private constructor(
    addon: QueuePairAddon,
    host: string,
    { port, maxPairs, onRequest }: QueuePairListenerOptions,
  ) {
    this.#addon = addon;
    this.#onRequest = onRequest;
    const { buffer } = this.#events;
    const opened = addon.listenQueuePairs(host, port, maxPairs, buffer, () => this.#take());
    if (opened.failed) throw queuePairListenError(opened, host, port);
    this.#listener = opened.listener;
    this.host = opened.host;
    this.port = opened.port;
  }

  /**
   * Listens.
   *
   * @throws RpcError `unavailable` without the addon, libfabric or an address for the name; of origin "fabric" if there
   * is no such device, or the address is in use.
   */
  static async listen(options: QueuePairListenerOptions): Promise<QueuePairListener> {
    const host = await numericHost(options.host);
    return new QueuePairListener(queuePairAddon(), host, options);
  }

  /**
   * Allocates memory, at most 2^32 bytes, and registers it.
   *
   * @throws RpcError of origin "fabric", `resource_exhausted` if the process may not pin so much.
   */
  register(bytes: number): RegisteredMemory {
    if (this.#isClosed)
      throw new RpcError({ code: "failed_precondition", message: "the listener is closed" });
    return new RegisteredMemory(this.#addon, this.#listener, bytes);
  }

  /**
   * Ends every connection and stops listening. Release memory before; otherwise its release comes with its collection.
   */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    for (const pair of [...this.#pairs.values()]) pair.close();
    this.#addon.closeQueuePairs(this.#listener);
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #take(): void {
    const { words, requested, completed } = queuePairEvent;
    const count = this.#addon.takeQueuePairEvents(this.#listener);
    for (let at = 0; at < count * words; at += words) {
      const word = (index: number) => this.#events[at + index] as number;
      const number = word(1);
      if (word(0) === requested) this.#request(number);
      else if (word(0) === completed) this.#pairs.get(number)?.complete(word(2), word(4));
      else this.#pairs.get(number)?.close();
    }
  }

  #request(number: number): void {
    const pair = new QueuePair(this.#addon, this.#listener, number, () => this.#pairs.delete(number));
    this.#pairs.set(number, pair);
    if (this.#isClosed) pair.close();
    else this.#onRequest(pair);
  }
}
