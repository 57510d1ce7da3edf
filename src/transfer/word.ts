import { isSharedArrayBuffer } from "node:util/types";
import { RpcError } from "../base/errors/rpc-error.ts";
import { shown } from "../base/options/options.ts";
import { callPromise } from "../call/call-operations.ts";
import { assertInside } from "../memory/exposable.ts";
import type { RegionCore } from "../memory/region-core.ts";
import { permits } from "../memory/region-kind.ts";
import { grantOf, RemoteRegion } from "../memory/remote-region.ts";
import { builtin } from "../wire/builtin.ts";
import { asCount, builtinMethod, isUint64 } from "./control/control-method.ts";
import { requestInCall, unexpected } from "./control/control-request.ts";
import type { PeerLink } from "./control/peer-link.ts";
import type { TransferScope } from "./control/transfer-route.ts";

/** The operations on a word, by their wire numbers. */
const operation = { read: 0, swap: 1, fetchAdd: 2, compareAndSwap: 3 } as const;
type Operation = keyof typeof operation;

const wordBytes = 8;

/**
 * A 64-bit word in a peer's memory, aligned to 8 bytes, in the byte order of its machine. The owner's thread executes
 * all operations on a word one after another. Values are unsigned 64-bit integers as bigints; sums wrap. Made by
 * `call.word` or `borrowed.word`.
 *
 * @example
 * const word = call.word(counter, 8);
 * const before = await word.fetchAdd(1n);
 * const won = (await word.compareAndSwap(0n, 7n)) === 0n;
 */
export class RemoteWord {
  readonly #scope: TransferScope;
  readonly #session: PeerLink;
  readonly #remote: RemoteRegion;
  readonly #offset: number;

  /**
   * @internal Made by `call.word`. @throws RpcError `out_of_range`, `invalid_argument` for an offset that is no
   * multiple of 8.
   */
  constructor(scope: TransferScope, session: PeerLink, remote: unknown, byteOffset: number) {
    if (!(remote instanceof RemoteRegion))
      throw new TypeError("word: the first argument must be a region from this call's input");
    assertInside("word", byteOffset, wordBytes, remote.byteLength);
    if (byteOffset % wordBytes !== 0)
      throw invalid(`word: byteOffset must be a multiple of ${wordBytes}, it is ${shown(byteOffset)}`);
    if (grantOf(remote).call !== scope) {
      throw new RpcError({
        code: "permission_denied",
        message: "word: the region belongs to another call",
        origin: "local",
      });
    }
    this.#scope = scope;
    this.#session = session;
    this.#remote = remote;
    this.#offset = byteOffset;
  }

  /** Reads the word. Needs the access "read". */
  read(): Promise<bigint> {
    return this.#ask("read", 0n, 0n);
  }

  /** Stores `value`; resolves to the previous value. Needs "read_write", as do the operations below. */
  swap(value: bigint): Promise<bigint> {
    return this.#ask("swap", value, 0n);
  }

  /** Adds `value` modulo 2^64; resolves to the previous value. */
  fetchAdd(value: bigint): Promise<bigint> {
    return this.#ask("fetchAdd", value, 0n);
  }

  /**
   * Stores `desired` if the word equals `expected`. Resolves to the previous value, which is `expected` exactly when
   * `desired` was stored.
   */
  compareAndSwap(expected: bigint, desired: bigint): Promise<bigint> {
    return this.#ask("compareAndSwap", expected, desired);
  }

  #ask(name: Operation, first: bigint, second: bigint): Promise<bigint> {
    return callPromise(this.#scope.operations, () => this.#execute(name, first, second));
  }

  async #execute(name: Operation, first: bigint, second: bigint): Promise<bigint> {
    for (const value of [first, second]) {
      if (!isUint64(value))
        throw invalid(`${name}: the value must be a bigint from 0 to 2^64 - 1, it is ${shown(value)}`);
    }
    const { access } = this.#remote;
    const { grantKey, grantOffset } = grantOf(this.#remote);
    const needed = name === "read" ? "read" : "read_write";
    if (!permits(access, needed)) {
      throw new RpcError({
        code: "permission_denied",
        message: `${name}: the region was exposed as "${access}"; ${name} needs "${needed}"`,
        origin: "local",
      });
    }
    const value = await requestInCall(this.#scope, this.#session, builtin.word, [
      grantKey,
      grantOffset + this.#offset,
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

/** Serves `word` at the owner. */
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
    const region = session.grants.check(key, needed, offset, wordBytes);
    const value = execute(wordAt(region, offset), which, first, second);
    // Again: of a file that is cut off meanwhile, the word was read as 0.
    session.grants.check(key, needed, offset, wordBytes);
    call.settle({ value });
  },
);

/** The word as an array of one element on the owner's memory. */
function wordAt(region: RegionCore, offset: number): BigUint64Array {
  let from = offset;
  for (const { buffer, byteOffset, byteLength } of region.segments) {
    if (from >= byteLength) {
      from -= byteLength;
      continue;
    }
    if (from + wordBytes > byteLength) throw invalid("word: the word crosses two segments of the region");
    if ((byteOffset + from) % wordBytes !== 0)
      throw invalid("word: the owner's memory at this offset is not aligned to 8 bytes");
    return new BigUint64Array(buffer, byteOffset + from, 1);
  }
  throw invalid("word: the offset lies outside the region");
}

/** Other threads of the owner may use shared memory with Atomics; other memory belongs to this thread alone. */
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
