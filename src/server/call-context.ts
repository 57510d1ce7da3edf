import type { ReadableStream, WritableStream } from "node:stream/web";
import type { PullType } from "../bulk/pull.ts";
import type { RemoteRegionLike } from "../bulk/region-kind.ts";
import type { RemoteRegion } from "../bulk/remote-region.ts";
import type { RemoteStreamLike } from "../bulk/stream-kind.ts";
import type { Transfer } from "../bulk/transfer.ts";
import type {
  GetPart,
  LocalMemory,
  PullOptions,
  PutOptions,
  PutPart,
  TransferControl,
  TransferOptions,
  TransferPart,
} from "../bulk/transfer-options.ts";
import type { IncomingCall } from "../call/incoming-call.ts";
import { move, moveParts, movePulled } from "../memory/moves.ts";
import { openStream } from "../memory/open-stream.ts";
import { remoteReadable } from "../memory/remote-reader.ts";
import { remoteWritable } from "../memory/remote-writer.ts";
import { RemoteWord } from "../memory/word.ts";
import type { Session } from "../session/session.ts";
import { DeclaredFailure } from "./declared-failure.ts";

/** What a handler knows of the call it serves, and what it can do with it; the contract adds `fail`, typed by the method. */
export type CallContext = Omit<HandlerCall, "fail">;

/** The call as handlers get it. */
export class HandlerCall {
  readonly #call: IncomingCall;
  readonly #session: Session;
  /** The method called, as `service/method`. */
  readonly method: string;

  /** @internal */
  constructor(call: IncomingCall, session: Session, method: string) {
    this.#call = call;
    this.#session = session;
    this.method = method;
  }

  /** The call's number on its session, as the caller's errors name it. */
  get id(): number {
    return this.#call.id;
  }

  /** The caller: its address as far as it is known, for logs. */
  get peer(): string {
    return this.#session.peerName;
  }

  /** Fires when the caller cancels, its time is up, or it is lost; its reason is an `RpcError`. Does not fire when the call ends by itself. */
  get signal(): AbortSignal {
    return this.#call.signal;
  }

  /** Milliseconds until the caller's deadline; 0 when it has passed. */
  get timeLeftMs(): number {
    return Math.max(0, this.#call.deadlineMs - this.#session.host.clock.now());
  }

  /**
   * Pulls the caller's memory into `local`, one-sided: the caller's thread is not asked. `offset` is where to begin in the remote region, `localOffset`
   * where in `local`, `length` how much (default: all of `local`). Resolves to the number of bytes, with the data in place; `progress` and `landed`
   * of what it returns tell more.
   *
   * Checked before anything is posted. @throws RpcError `out_of_range`, `permission_denied`, `invalid_argument` for memory that overlaps,
   * `failed_precondition` when the call has ended; rejects with the signal's reason when the call ends meanwhile, and then leaves `local` in use
   * until `landed` settles.
   */
  get(remote: RemoteRegionLike<"read">, local: LocalMemory, options?: TransferOptions): Transfer {
    return move("get", this.#call, this.#session, remote as RemoteRegion, local, options);
  }

  /** Pushes `local` into the caller's memory, one-sided; as `get`, the other way. Resolves when the data is in place at the caller. */
  put(local: LocalMemory, remote: RemoteRegionLike<"write">, options?: PutOptions): Transfer {
    return move("put", this.#call, this.#session, remote as RemoteRegion, local, options);
  }

  /** As `get`, for many parts in one transfer: fewer round trips than a `get` for each. They land in any order. */
  getv(parts: readonly GetPart[], options?: TransferControl): Transfer {
    return moveParts("get", this.#call, this.#session, parts as readonly TransferPart[], options);
  }

  /** As `put`, for many parts in one transfer. */
  putv(parts: readonly PutPart[], options?: TransferControl): Transfer {
    return moveParts("put", this.#call, this.#session, parts as readonly TransferPart[], options);
  }

  /**
   * Pulls the caller's memory into memory of its own, and gives it as what is asked for: `pull(region, Float64Array)`. `length` is in bytes, by default all
   * from `offset` on. Bytes are taken as they are; both sides are little-endian.
   *
   * @throws as `get`; RpcError `invalid_argument` when the bytes are no whole number of elements.
   */
  pull<T extends ArrayBufferView>(
    remote: RemoteRegionLike<"read">,
    Type: PullType<T>,
    options?: PullOptions,
  ): Promise<T> {
    return movePulled(this.#call, this.#session, remote as RemoteRegion, Type, options);
  }

  /**
   * A 64-bit word of the caller's memory, to be read and changed atomically; `byteOffset` is a multiple of 8.
   *
   * @throws RpcError `out_of_range`, `invalid_argument`, `permission_denied` when the region came with another call.
   */
  word(remote: RemoteRegionLike<"read" | "read_write">, byteOffset = 0): RemoteWord {
    return new RemoteWord(this.#call, this.#session, remote, byteOffset);
  }

  /**
   * Opens a byte stream of the caller's for reading; a byte stream, so a reader may bring its own buffer. Once a stream. Cancelling it fails the caller's
   * side with the reason. Ends with an error when the call ends first.
   */
  readable(stream: RemoteStreamLike<"read">): ReadableStream<Uint8Array> {
    return remoteReadable(this.#call, this.#session, openStream(stream, "read", this.#call, this.#session));
  }

  /**
   * Opens a byte stream of the caller's for writing. Once a stream. Its `close` resolves when the caller has read everything; `abort` fails the caller's side
   * with the reason. Ends with an error when the call ends first.
   */
  writable(stream: RemoteStreamLike<"write">): WritableStream<Uint8Array> {
    return remoteWritable(this.#call, this.#session, openStream(stream, "write", this.#call, this.#session));
  }

  /** Ends the call with an error its contract declares. Handlers see it typed by the method: only declared reasons compile. */
  fail(reason: string, data?: unknown): never {
    throw new DeclaredFailure(reason, data);
  }
}
