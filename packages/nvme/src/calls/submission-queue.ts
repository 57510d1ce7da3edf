import { type Client, type Engine, type Peer, type Region, RpcError } from "cinnabar/standard";
import {
  type Answer,
  answerAt,
  CommandIds,
  type HostCommand,
  QueueLostError,
  type SubmissionQueue,
} from "../host/submission-queue.ts";
import { sgl, sqeBytes } from "../nvme/command.ts";
import { SpareBuffers } from "../socket/spare-buffers.ts";
import { bufferOf, Capsules, dataAt, keyBytes } from "./capsule-service.ts";

/**
 * The longest data that a message of each transport has beside the capsule. Other transports, which are devices: 12
 * KiB.
 */
const messageDataBytes: Readonly<Record<string, number>> = {
  mem: 28 * 1024,
  shm: 28 * 1024,
  tcp: 60 * 1024,
  net: 60 * 1024,
  "net+unix": 60 * 1024,
  "net+pipe": 60 * 1024,
};
const deviceDataBytes = 12 * 1024;
/** The longest time of a call. */
const longestMs = 2 ** 31 - 1;

/** The key in Connect, which has no queue yet. */
const noKey = Buffer.alloc(keyBytes);

/** The options of a call beside those of the client. */
interface CallOptions {
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
}

/** Undefined for most calls. */
function optionsOf({ isPatient }: HostCommand, signal: AbortSignal | undefined): CallOptions | undefined {
  if (isPatient !== true) return signal === undefined ? undefined : { signal };
  return signal === undefined ? { timeoutMs: longestMs } : { timeoutMs: longestMs, signal };
}

export interface CallQueueOptions {
  readonly engine: Engine;
  readonly url: string;
  /** Entries of the queue: one more than the commands that may be under way. */
  readonly entries: number;
  /** How long a connection, and the answer to a command, may take, in milliseconds. */
  readonly timeoutMs: number;
}

/** A queue in calls of Cinnabar: a stream and calls, the host's side. */
export class CallSubmissionQueue implements SubmissionQueue {
  readonly lost: Promise<Error>;
  readonly #engine: Engine;
  readonly #peer: Peer;
  readonly #client: Client<typeof Capsules>;
  readonly #timeoutMs: number;
  readonly #dataBytes: number;
  readonly #ids: CommandIds;
  readonly #capsules = new SpareBuffers();
  readonly #ending = new AbortController();
  #key: Buffer | undefined;
  #calls = 0;
  #reason: Error | undefined;
  #markLost: (reason: Error) => void = () => {};

  private constructor(peer: Peer, { engine, url, entries, timeoutMs }: CallQueueOptions) {
    this.#engine = engine;
    this.#peer = peer;
    this.#client = peer.client(Capsules, { timeoutMs });
    this.#timeoutMs = timeoutMs;
    this.#dataBytes = messageDataBytes[url.slice(0, url.indexOf(":"))] ?? deviceDataBytes;
    this.#ids = new CommandIds(entries - 1);
    this.lost = new Promise((resolve) => (this.#markLost = resolve));
  }

  /** @throws Error with the reason. */
  static async open(options: CallQueueOptions, signal: AbortSignal): Promise<CallSubmissionQueue> {
    const { engine, url, timeoutMs } = options;
    const peer = await engine.connect(url, { timeoutMs });
    if (!signal.aborted) return new CallSubmissionQueue(peer, options);
    peer.close();
    throw new Error("closed");
  }

  get underWay(): number {
    return this.#calls + this.#ids.waiting;
  }

  /** The limit of a message decides, not the controller. */
  admit(): void {}

  async submit(command: HostCommand, signal?: AbortSignal): Promise<Answer> {
    signal?.throwIfAborted();
    if (this.#reason !== undefined) throw new QueueLostError(false, this.#reason);
    if (this.#key === undefined) return this.#open(command);
    const taken = command.second === undefined ? this.#ids.take(signal) : this.#ids.takeTwo(signal);
    const ids = typeof taken === "number" ? taken : await taken;
    this.#calls++;
    try {
      if (this.#reason !== undefined) throw new QueueLostError(false, this.#reason);
      // The end of the peer ends the calls to it.
      return await this.#call(command, optionsOf(command, signal));
    } catch (error) {
      if (signal?.aborted === true) throw signal.reason;
      if (!(error instanceof RpcError)) throw error;
      this.end(error);
      throw new QueueLostError(error.notExecuted !== true, this.#reason ?? error);
    } finally {
      this.#calls--;
      if (typeof ids === "number") this.#ids.giveBack(ids);
      else for (const id of ids) this.#ids.giveBack(id);
    }
  }

  end(reason: Error): void {
    if (this.#reason !== undefined) return;
    this.#reason = reason;
    this.#ending.abort(reason);
    this.#ids.fail(new QueueLostError(false, reason));
    this.#peer.close();
    this.#markLost(reason);
  }

  /** Connect: opens the stream of the queue. The queue lives as long as the stream. */
  async #open(command: HostCommand): Promise<Answer> {
    const { signal } = this.#ending;
    const items = this.#client
      .open(this.#capsuleOf(noKey, command, true), { signal })
      [Symbol.asyncIterator]();
    let late: NodeJS.Timeout | undefined;
    try {
      const silence = new Promise<never>((_, reject) => {
        late = setTimeout(() => reject(new Error(`no answer within ${this.#timeoutMs} ms`)), this.#timeoutMs);
      });
      const { value, done } = await Promise.race([items.next(), silence]);
      if (done === true || value === undefined || value.length < dataAt.answer + keyBytes)
        throw new Error("the target has no answer to Connect");
      const item = bufferOf(value);
      const answer = answerAt(item);
      if (answer.status === 0) {
        this.#key = Buffer.from(item.subarray(dataAt.answer, dataAt.answer + keyBytes));
        void this.#follow(items);
      }
      return answer;
    } catch (error) {
      this.end(error as Error);
      throw error;
    } finally {
      clearTimeout(late);
    }
  }

  /** The queue ends with its stream. */
  async #follow(items: AsyncIterator<Uint8Array>): Promise<void> {
    try {
      while ((await items.next()).done !== true);
      this.end(new Error("the target has ended the queue"));
    } catch (error) {
      this.end(error as Error);
    }
  }

  async #call(command: HostCommand, options: CallOptions | undefined): Promise<Answer> {
    const { fromHost, toHost, second } = command;
    const key = this.#key as Buffer;
    if (second !== undefined) return this.#fused(key, [command, second], options);
    if (fromHost !== undefined && fromHost.length > this.#dataBytes)
      return answerAt(
        await this.#lent(this.#engine.expose(fromHost, { access: "read" }), (memory) =>
          this.#client.gather({ capsule: this.#capsuleOf(key, command, false), memory }, options),
        ),
      );
    if (toHost !== undefined && toHost.length > this.#dataBytes)
      return answerAt(
        await this.#lent(this.#engine.expose(toHost, { access: "write" }), (memory) =>
          this.#client.scatter({ capsule: this.#capsuleOf(key, command, false), memory }, options),
        ),
      );
    const capsule = this.#capsuleOf(key, command, true);
    const bytes = bufferOf(await this.#client.submit(capsule, options));
    // A failed call may still be under way.
    this.#capsules.giveBack(capsule);
    const answer = answerAt(bytes);
    if (answer.status === 0 && toHost !== undefined) {
      if (bytes.length !== dataAt.answer + toHost.length)
        throw new Error("the target has sent other data than asked for");
      toHost.set(bytes.subarray(dataAt.answer));
    }
    return answer;
  }

  /** The data of both commands go in one piece. */
  async #fused(
    key: Buffer,
    commands: readonly HostCommand[],
    options: CallOptions | undefined,
  ): Promise<Answer> {
    const data = Buffer.concat(commands.map(({ fromHost }) => fromHost ?? Buffer.alloc(0)));
    const isInCapsule = data.length + sqeBytes <= this.#dataBytes;
    const capsule = fusedCapsuleOf(key, commands, isInCapsule ? data : undefined);
    const answers = isInCapsule
      ? bufferOf(await this.#client.fuse(capsule, options))
      : await this.#lent(this.#engine.expose(data, { access: "read" }), (memory) =>
          this.#client.gatherFused({ capsule, memory }, options),
        );
    return { ...answerAt(answers), second: answerAt(answers, dataAt.answer) };
  }

  #capsuleOf(key: Buffer, { entry, fromHost, toHost }: HostCommand, isInCapsule: boolean): Buffer {
    const data = isInCapsule ? fromHost : undefined;
    const capsule = this.#capsules.take(dataAt.capsule + (data?.length ?? 0));
    key.copy(capsule);
    entry.copy(capsule, keyBytes);
    capsule.writeUInt32LE((fromHost ?? toHost)?.length ?? 0, keyBytes + 32);
    capsule.writeUInt8(data === undefined ? sgl.transport : sgl.inCapsule, keyBytes + 39);
    if (data !== undefined) capsule.set(data, dataAt.capsule);
    return capsule;
  }

  /**
   * A call that lends memory to the target. When the call ends, the access ends too, and the memory is the owner's
   * again.
   */
  async #lent<A extends "read" | "write">(
    region: Region<A>,
    call: (region: Region<A>) => Promise<Uint8Array>,
  ): Promise<Buffer> {
    try {
      return bufferOf(await call(region));
    } catch (error) {
      await region.revoke();
      throw error;
    } finally {
      region.dispose();
    }
  }
}

/** The entries of two commands, and the data of both. */
function fusedCapsuleOf(key: Buffer, commands: readonly HostCommand[], data: Buffer | undefined): Buffer {
  const head = Buffer.alloc(dataAt.fused);
  key.copy(head);
  for (const [index, { entry, fromHost }] of commands.entries()) {
    const at = keyBytes + index * sqeBytes;
    const bytes = fromHost?.length ?? 0;
    entry.copy(head, at);
    if (data !== undefined) head.writeBigUInt64LE(BigInt(index * bytes), at + 24);
    head.writeUInt32LE(bytes, at + 32);
    head.writeUInt8(data === undefined ? sgl.transport : sgl.inCapsule, at + 39);
  }
  return data === undefined ? head : Buffer.concat([head, data]);
}
