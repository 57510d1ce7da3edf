import { sgl } from "../nvme/command.ts";
import { type CommandFields, commandEntry } from "../tcp/host.test-support.ts";
import type { MemoryPart, PeerMemory, QueuePair, RegisteredMemory, WorkDone } from "./queue-pairs.ts";

/** Memory as a device registers it: no part is in use when it is released. */
export class FakeMemory {
  buffer: Buffer;
  isReleased = false;

  constructor(bytes: number) {
    this.buffer = Buffer.alloc(bytes);
  }

  release(): void {
    this.isReleased = true;
    this.buffer = Buffer.alloc(0);
  }
}

/** An answer of the target. */
export interface FakeAnswer {
  readonly id: number;
  readonly status: number;
  readonly head: number;
  readonly result: bigint;
}

/** Where a host's own memory begins, in which commands name parts. */
export const hostBase = 0x7f00_0000_1000n;
export const hostKey = 0x8a01_0203;

/** A queue pair without a device: the host's side is the test, and all work is done in the order of posting. */
export class FakePair {
  onEnd: () => void = () => {};
  isOver = false;
  isAccepted = false;
  sends = 0;
  receives = 0;
  /** The host's memory behind the key. */
  readonly memory = Buffer.alloc(3 * 1024 * 1024);
  readonly answers: FakeAnswer[] = [];
  /** Work is held back until `release`. */
  isHeld = false;
  readonly #free: { readonly part: MemoryPart; readonly done: WorkDone }[] = [];
  readonly #posted: { readonly work: () => number | undefined; readonly done: WorkDone }[] = [];
  #isTurning = false;

  /** The type of a real one. */
  get asPair(): QueuePair {
    return this as unknown as QueuePair;
  }

  /** Receives that are posted. */
  get waiting(): number {
    return this.#free.length;
  }

  open(sends: number, receives: number): void {
    [this.sends, this.receives] = [sends, receives];
  }

  accept(): void {
    this.isAccepted = true;
  }

  receive(part: MemoryPart, done: WorkDone): void {
    if (this.isOver) return done(undefined);
    this.#free.push({ part, done });
    if (this.#free.length > this.receives) throw new Error("more receives than the queue pair has room for");
  }

  send(part: MemoryPart, done: WorkDone): void {
    this.#post(() => {
      const { memory, offset, bytes } = part;
      const answer = Buffer.from(memory.buffer.subarray(offset, offset + bytes));
      this.answers.push({
        id: answer.readUInt16LE(12),
        status: (answer.readUInt16LE(14) >>> 1) & 0x7ff,
        head: answer.readUInt16LE(8),
        result: answer.readBigUInt64LE(0),
      });
      return bytes;
    }, done);
  }

  read(part: MemoryPart, from: PeerMemory, done: WorkDone): void {
    this.#transfer(part, from, done, (ours, theirs) => theirs.copy(ours));
  }

  write(part: MemoryPart, to: PeerMemory, done: WorkDone): void {
    this.#transfer(part, to, done, (ours, theirs) => ours.copy(theirs));
  }

  close(): void {
    if (this.isOver) return;
    this.isOver = true;
    for (const { done } of [...this.#free.splice(0), ...this.#posted.splice(0)]) done(undefined);
    this.onEnd();
  }

  /** The host sends a capsule. */
  deliver(capsule: Buffer): void {
    const next = this.#free.shift();
    if (next === undefined) throw new Error("no receive is posted");
    const { memory, offset, bytes } = next.part;
    // A longer message is an error of the device.
    if (capsule.length > bytes) return this.close();
    capsule.copy(memory.buffer, offset);
    next.done(capsule.length);
  }

  command(fields: CommandFields & { readonly at?: number; readonly key?: number }, inCapsule?: Buffer): void {
    this.deliver(Buffer.concat([keyedEntry(fields), inCapsule ?? Buffer.alloc(0)]));
  }

  release(): void {
    this.isHeld = false;
    this.#turn();
  }

  #transfer(
    { memory, offset, bytes }: MemoryPart,
    { address, key }: PeerMemory,
    done: WorkDone,
    move: (ours: Buffer, theirs: Buffer) => void,
  ): void {
    this.#post(() => {
      const at = Number(address - hostBase);
      if (key !== hostKey || at < 0 || at + bytes > this.memory.length) return undefined;
      move(memory.buffer.subarray(offset, offset + bytes), this.memory.subarray(at, at + bytes));
      return bytes;
    }, done);
  }

  #post(work: () => number | undefined, done: WorkDone): void {
    if (this.isOver) return done(undefined);
    this.#posted.push({ work, done });
    if (this.#posted.length > this.sends) throw new Error("more work than the queue pair has room for");
    this.#turn();
  }

  /** Does one after the other, in a later turn than the posting, as a device does. */
  #turn(): void {
    if (this.#isTurning || this.isHeld || this.#posted.length === 0) return;
    this.#isTurning = true;
    setImmediate(() => {
      this.#isTurning = false;
      if (this.isHeld) return;
      const next = this.#posted.shift();
      if (next === undefined) return;
      const bytes = next.work();
      if (bytes === undefined) {
        this.#posted.unshift(next);
        this.close();
        return;
      }
      next.done(bytes);
      this.#turn();
    });
  }
}

/** An entry whose data are in the host's memory, `at` bytes from its beginning, unless the fields say otherwise. */
function keyedEntry({
  at = 0,
  key = hostKey,
  ...fields
}: CommandFields & { readonly at?: number; readonly key?: number }): Buffer {
  const sglKind = fields.sglKind ?? sgl.keyed;
  const entry = commandEntry({ ...fields, sglKind });
  if (sglKind !== sgl.keyed && sglKind !== sgl.keyedInvalidate) return entry;
  entry.writeBigUInt64LE(hostBase + BigInt(at), 24);
  entry.writeUIntLE(fields.bytes ?? 0, 32, 3);
  entry.writeUInt32LE(key, 35);
  return entry;
}

export const registered = (memory: FakeMemory): RegisteredMemory => memory as unknown as RegisteredMemory;
