import { isSharedArrayBuffer } from "node:util/types";
import { assertInside } from "../bulk/exposable.ts";
import type { Region } from "../bulk/region.ts";
import { grants } from "../bulk/region-kind.ts";
import { RemoteRegion } from "../bulk/remote-region.ts";
import type { IncomingCall } from "../call/incoming-call.ts";
import { RpcError } from "../errors/rpc-error.ts";
import type { Session } from "../session/session.ts";
import { builtin } from "../wire/builtin.ts";
import { askInCall, unexpected } from "./ask-in-call.ts";
import { asCount, builtinMethod, isUint64 } from "./builtin-method.ts";
import { lentTo } from "./lent.ts";

/** What can be done with a word: the numbers travel. */
const operation = { read: 0, swap: 1, fetchAdd: 2, compareAndSwap: 3 } as const;
type Operation = keyof typeof operation;

const wordBytes = 8;

/**
 * A 64-bit word in memory that a caller has lent, 8-aligned, in the byte order of its machine. All operations on one word happen one after
 * another, in one order for everybody: the owner's thread executes them. Values are unsigned; sums wrap.
 */
export class RemoteWord {
  readonly #call: IncomingCall;
  readonly #session: Session;
  readonly #remote: RemoteRegion;
  readonly #offset: number;

  /** @internal Made by `call.word`. @throws RpcError `out_of_range`, `invalid_argument` for an offset that is no multiple of 8. */
  constructor(call: IncomingCall, session: Session, remote: unknown, byteOffset: number) {
    if (!(remote instanceof RemoteRegion))
      throw new TypeError("word: the first argument must be a region that came with this call's input");
    assertInside("word", byteOffset, wordBytes, remote.byteLength);
    if (byteOffset % wordBytes !== 0)
      throw invalid(`word: offset ${byteOffset} is no multiple of ${wordBytes}`);
    if (remote.call !== call) {
      throw new RpcError({
        code: "permission_denied",
        message: "word: the region came with another call, and ends with it",
        origin: "local",
      });
    }
    this.#call = call;
    this.#session = session;
    this.#remote = remote;
    this.#offset = byteOffset;
  }

  /** The value now. Needs "read". */
  read(): Promise<bigint> {
    return this.#ask("read", 0n, 0n);
  }

  /** Puts `value` there; resolves to what was there before. Needs "read_write", as all that follow. */
  swap(value: bigint): Promise<bigint> {
    return this.#ask("swap", value, 0n);
  }

  /** Adds `value`, modulo 2^64; resolves to what was there before. */
  fetchAdd(value: bigint): Promise<bigint> {
    return this.#ask("fetchAdd", value, 0n);
  }

  /** Puts `desired` there if `expected` is there. Resolves to what was there before: `expected` exactly when it was put. */
  compareAndSwap(expected: bigint, desired: bigint): Promise<bigint> {
    return this.#ask("compareAndSwap", expected, desired);
  }

  async #ask(name: Operation, first: bigint, second: bigint): Promise<bigint> {
    for (const value of [first, second]) {
      if (!isUint64(value))
        throw invalid(`${name}: values are big integers from 0 to 2^64 - 1, this is ${String(value)}`);
    }
    const { access, loanKey, loanOffset } = this.#remote;
    const needed = name === "read" ? "read" : "read_write";
    if (!grants(access, needed)) {
      throw new RpcError({
        code: "permission_denied",
        message: `${name}: the region was exposed for "${access}", this needs "${needed}"`,
        origin: "local",
      });
    }
    const value = await askInCall(this.#call, this.#session, builtin.word, [
      loanKey,
      loanOffset + this.#offset,
      operation[name],
      first,
      second,
    ]);
    if (!isUint64(value)) throw unexpected(this.#session);
    return value;
  }
}

interface WordInput {
  readonly key: bigint;
  readonly offset: number;
  readonly operation: number;
  readonly first: bigint;
  readonly second: bigint;
}

/** Serves `word`: the owner's side. */
export const wordMethod = builtinMethod<WordInput>(
  "word",
  ([key, at, which, first, second]) => {
    const offset = asCount(at);
    const fits =
      isUint64(key) &&
      offset !== undefined &&
      Object.values<unknown>(operation).includes(which) &&
      isUint64(first) &&
      isUint64(second);
    return fits ? { key, offset, operation: which as number, first, second } : undefined;
  },
  ({ key, offset, operation: which, first, second }, call, session) => {
    const needed = which === operation.read ? "read" : "read_write";
    const region = lentTo(session, key, needed, offset, wordBytes);
    call.settle({ value: execute(wordAt(region, offset), which, first, second) });
  },
);

/** The word as an array of one, on the owner's memory itself. */
function wordAt(region: Region, offset: number): BigUint64Array {
  let from = offset;
  for (const { buffer, byteOffset, byteLength } of region.segments) {
    if (from >= byteLength) {
      from -= byteLength;
      continue;
    }
    if (from + wordBytes > byteLength)
      throw invalid("word: it would lie across two of the region's segments");
    if ((byteOffset + from) % wordBytes !== 0)
      throw invalid("word: the memory at this offset is not aligned to 8 bytes at its owner");
    return new BigUint64Array(buffer, byteOffset + from, 1);
  }
  throw invalid("word: the region has no such byte");
}

/** Shared memory may be in use by the owner's other threads, which join in by Atomics; elsewhere this thread is the only one. */
function execute(word: BigUint64Array, which: number, first: bigint, second: bigint): bigint {
  const shared = isSharedArrayBuffer(word.buffer);
  const before = shared ? Atomics.load(word, 0) : (word[0] as bigint);
  switch (which) {
    case operation.swap:
      if (shared) return Atomics.exchange(word, 0, first);
      word[0] = first;
      return before;
    case operation.fetchAdd:
      if (shared) return Atomics.add(word, 0, first);
      // Stored modulo 2^64.
      word[0] = before + first;
      return before;
    case operation.compareAndSwap:
      if (shared) return Atomics.compareExchange(word, 0, first, second);
      if (before === first) word[0] = second;
      return before;
    default:
      return before;
  }
}

function invalid(message: string): RpcError {
  return new RpcError({ code: "invalid_argument", message, origin: "local" });
}
