import { RpcError } from "../base/errors/rpc-error.ts";
import { checkOptions, type FieldsOf, milliseconds, shown, text } from "../base/options/options.ts";
import { ContextValues } from "../call/context-values.ts";
import { wantCurrentCallIn } from "../call/current-call.ts";
import type { IncomingCall } from "../call/incoming-call.ts";
import type { ClientOptions } from "../client/call-options.ts";
import type { Client } from "../client/client.ts";
import { SessionClients, type SessionPeer } from "../client/session-peer.ts";
import type { ErrorDeclaration, ErrorDeclarations } from "../contract/declared-error.ts";
import type { FailOptions } from "../contract/infer.ts";
import type { AnyService } from "../contract/service.ts";
import type { RemoteRegionLike } from "../memory/region-kind.ts";
import type { RemoteRegion } from "../memory/remote-region.ts";
import type { Identity } from "../security/identity.ts";
import type { PeerLink } from "../transfer/control/peer-link.ts";
import { pull, type Transfer, transfer, transferParts } from "../transfer/transfer.ts";
import type {
  GetPart,
  LocalMemory,
  PullOptions,
  PutOptions,
  PutPart,
  TransferControl,
  TransferOptions,
  TransferPart,
} from "../transfer/transfer-options.ts";
import {
  type Metadata,
  type MetadataInit,
  nestedMetadataOf,
  noMetadata,
  replaceEntries,
} from "../wire/metadata/metadata.ts";

/** A handler's interface to its call. The contract adds `fail`, typed by the method's declared errors. */
export type CallContext = Omit<HandlerCall, "fail">;

/** The second argument of a handler: the caller's identity, the deadline, and access to the caller's memory. */
export class HandlerCall {
  readonly #call: IncomingCall;
  readonly #peer: PeerLink;
  readonly #errors: ErrorDeclarations;
  #context: ContextValues | undefined;
  /** The method, as `service/method`. */
  readonly method: string;

  /** @internal */
  constructor(call: IncomingCall, peer: PeerLink, method: string, errors: ErrorDeclarations) {
    this.#call = call;
    this.#peer = peer;
    this.#errors = errors;
    this.method = method;
  }

  /** The call's id on its session. The caller's errors carry the same id. */
  get id(): number {
    return this.#call.id;
  }

  /** The caller's address, for logs. */
  get peer(): string {
    return this.#peer.peerName;
  }

  /**
   * The engine that has made this call. Its clients call the services that it serves to this one, over the open
   * session. They inherit deadline and cancellation of this call.
   *
   * @example
   * const { text } = await call.caller.client(Greeter).greet({ name: "caller" });
   */
  get caller(): SessionPeer {
    wantCurrentCallIn(this.#call);
    return this.#peer.part(SessionClients).peer;
  }

  /**
   * As `call.caller.client(service, options)`. With `inherit: false` it needs no async context: before Node 24 such a
   * context raises the cost of every promise of the process.
   *
   * @throws TypeError for bad options, and for anything but a service.
   */
  callerClient<S extends AnyService>(service: S, options: ClientOptions = {}): Client<S> {
    const peer = options?.inherit === false ? this.#peer.part(SessionClients).peer : this.caller;
    return peer.client(service, options);
  }

  /**
   * The caller's identity, as it was proven when the session opened: by a certificate, a pre-shared key, or for `shm`
   * by the kernel. Undefined for a peer without a proof.
   */
  get identity(): Identity | undefined {
    return this.#peer.identity;
  }

  /** Whether `security.allow` lets the caller call the method of this path, such as `files.v1/read`. True without it. */
  permits(path: string): boolean {
    return this.#peer.permits(path);
  }

  /** Whether only the caller can read the answer: the session is sealed, or does not leave this host. */
  get isConfidential(): boolean {
    return this.#peer.isConfidential;
  }

  /** The metadata of the request. Empty when the caller sent none. It cannot be changed. */
  get metadata(): Metadata {
    return this.#call.metadata ?? noMetadata;
  }

  /**
   * Metadata for the caller that arrives before the first item or the answer. It leaves with `sendHeaders`, with the
   * first item, or just before the answer, and cannot be changed afterwards. A call that fails before that sends no
   * headers: metadata for an error belongs in `trailers`.
   *
   * @example
   * call.headers.set("x-shard", "eu-1");
   */
  get headers(): Metadata {
    return this.#call.headers;
  }

  /**
   * Metadata for the caller that arrives with the answer or the error. Entries set after the call has ended are lost.
   *
   * @example
   * call.trailers.set("x-served-by", String(process.pid));
   */
  get trailers(): Metadata {
    return this.#call.trailers;
  }

  /**
   * Sends `headers` to the caller now, before any item or the answer. `entries` are added first. Headers leave once.
   * Without any entry, no headers are sent. The caller of a one-way call does not receive them.
   *
   * @throws TypeError for a malformed entry, and for entries after the headers have left; RpcError `invalid_argument`
   * beyond the limits of metadata; the error of the call when it has ended.
   *
   * @example
   * call.sendHeaders({ "x-job": crypto.randomUUID() }); // the caller's `onHeaders` gets it while the job runs
   */
  sendHeaders(entries?: MetadataInit): void {
    this.#call.assertOpen();
    if (entries !== undefined) replaceEntries(this.#call.headers, entries);
    this.#call.sendHeaders();
  }

  /**
   * Metadata of the calls that the handler makes, beside their own. It begins with `traceparent`, `tracestate` and
   * `baggage` of the request. A call with `inherit: false` takes none of it. Middleware sets it for all handlers.
   *
   * @example
   * call.nestedMetadata.set("x-request-id", call.metadata.get("x-request-id") ?? crypto.randomUUID());
   */
  get nestedMetadata(): Metadata {
    this.#call.nestedMetadata ??= nestedMetadataOf(this.#call);
    return this.#call.nestedMetadata;
  }

  /** Values that middleware has set for this call, by their keys. */
  get context(): ContextValues {
    this.#context ??= new ContextValues();
    return this.#context;
  }

  /**
   * Fires when the caller cancels, the deadline passes, or the connection is lost. Its reason is an `RpcError`. Pass it
   * on to every operation that the handler awaits. It does not fire when the handler returns.
   */
  get signal(): AbortSignal {
    return this.#call.signal;
  }

  /** Milliseconds until the caller's deadline; 0 when it has passed. */
  get timeLeftMs(): number {
    return Math.max(0, this.#call.deadlineMs - this.#peer.clock.now());
  }

  /**
   * Copies the caller's memory into `local`. The transfer is one-sided: the caller's event loop takes no part.
   *
   * Copies as many bytes as `local` holds, unless `offset`, `localOffset` or `length` limit the range. Resolves to the
   * number of bytes when all of them are in place. The returned `Transfer` also has `progress` and `landed`.
   *
   * When the call ends or `signal` fires during the transfer, the promise rejects at once. `local` stays in use until
   * `landed` settles.
   *
   * @throws Rejects with RpcError `out_of_range` outside the region or `local`, `permission_denied` when the region
   * does not grant "read" or came with another call, `invalid_argument` when both sides overlap in memory,
   * `failed_precondition` after the call has ended; with the error of the call or signal that stopped it.
   *
   * @example
   * const head = new Uint8Array(16);
   * await call.get(region, head); // the first 16 bytes of the caller's region
   */
  get(remote: RemoteRegionLike<"read">, local: LocalMemory, options?: TransferOptions): Transfer {
    return transfer("get", this.#peer, this.#call, remote as RemoteRegion, local, options);
  }

  /**
   * Copies `local` into the caller's memory; otherwise like `get`. Resolves when all bytes are in place at the caller.
   * With `notify`, the caller's `region.notifications()` then reports the put.
   *
   * @throws Rejects as `get`; `permission_denied` when the region does not grant "write".
   *
   * @example
   * await call.put(pixels, region, { offset: 4096, notify: frame });
   */
  put(local: LocalMemory, remote: RemoteRegionLike<"write">, options?: PutOptions): Transfer {
    return transfer("put", this.#peer, this.#call, remote as RemoteRegion, local, options);
  }

  /**
   * As `get`, for up to 4096 parts in one transfer. Costs fewer round trips than one `get` for each. The parts land in
   * any order.
   */
  getv(parts: readonly GetPart[], options?: TransferControl): Transfer {
    return transferParts("get", this.#peer, this.#call, parts as readonly TransferPart[], options);
  }

  /** As `put`, for up to 4096 parts in one transfer. */
  putv(parts: readonly PutPart[], options?: TransferControl): Transfer {
    return transferParts("put", this.#peer, this.#call, parts as readonly TransferPart[], options);
  }

  /**
   * Copies the caller's memory into new memory and returns it as a typed array, a `Buffer` or a `DataView`. `length` is
   * in bytes; default: all bytes from `offset` on. Bytes are not converted: both sides are little-endian.
   *
   * @throws Rejects as `get`; RpcError `invalid_argument` when `length` is not a multiple of the element size,
   * `resource_exhausted` when there is no memory for it.
   *
   * @example
   * const samples = await call.pull(region, Float64Array);
   */
  pull<T extends ArrayBufferView>(
    remote: RemoteRegionLike<"read">,
    Type: { readonly prototype: T },
    options?: PullOptions,
  ): Promise<T> {
    return pull(this.#peer, this.#call, remote as RemoteRegion, Type, options);
  }

  /**
   * Counts bytes of the handler's own memory towards `limits.maxPullBytes`, as `pull` does, until the call has been
   * answered: for memory whose length the caller chooses.
   *
   * @throws RangeError for anything but a whole number of bytes; RpcError `resource_exhausted` when the limit is reached;
   * the error of the call when it has ended.
   *
   * @example
   * call.reserve(2 * region.byteLength);
   * const before = await call.pull(region, Uint8Array);
   * const after = new Uint8Array(region.byteLength);
   */
  reserve(bytes: number): void {
    if (!Number.isSafeInteger(bytes) || bytes < 0)
      throw new RangeError(`call.reserve: bytes must be a whole number of at least 0, it is ${shown(bytes)}`);
    const call = this.#call;
    // The answer gives the bytes back, so it must not have left.
    call.assertOpen();
    const { pulls } = this.#peer.account;
    const { maxPullBytes } = this.#peer.services.limits;
    // An empty budget admits one body above its limit. Reserved bytes have no other bound.
    if (bytes > maxPullBytes || !pulls.take(bytes))
      throw new RpcError({
        code: "resource_exhausted",
        message: `the call needs ${bytes} bytes more here; limits.maxPullBytes is ${maxPullBytes}`,
      });
    const { onAnswered } = call;
    call.onAnswered = () => {
      onAnswered?.();
      pulls.give(bytes);
    };
  }

  /**
   * Fails the call with a declared error. It throws. It is typed for handlers: only the method's declared reasons
   * compile. It is bound to the call, so a handler may destructure it.
   */
  get fail(): (reason: string, data?: unknown, options?: FailOptions) => never {
    return (reason, data, options) => {
      if (!this.#call.open)
        throw new RpcError({
          code: "failed_precondition",
          message: `call.fail: the call of ${this.method} has ended, so its caller does not get ${shown(reason)}`,
        });
      throw new DeclaredFailure(reason, data, options, this.#errors[reason]);
    };
  }
}

/** The call of a stream whose caller sends items: the contract types `input`, which opened the stream. */
export class StreamHandlerCall extends HandlerCall {
  readonly input: unknown;

  /** @internal */
  constructor(call: IncomingCall, peer: PeerLink, method: string, errors: ErrorDeclarations, input: unknown) {
    super(call, peer, method, errors);
    this.input = input;
  }
}

const failOptions = {
  message: text(1, 2048),
  retryAfterMs: milliseconds(),
} satisfies FieldsOf<FailOptions>;

/**
 * The error that `call.fail` throws. Middleware sees the same code, reason and data as the caller. The dispatcher
 * checks the data and sends it.
 */
export class DeclaredFailure extends RpcError {
  constructor(
    reason: string,
    data: unknown,
    options: FailOptions = {},
    declared: ErrorDeclaration | undefined,
  ) {
    checkOptions("call.fail", options, failOptions);
    const { message = declared?.message ?? `declared error ${reason}`, retryAfterMs } = options;
    super({ code: declared?.code ?? "failed_precondition", message, reason, data, retryAfterMs });
  }
}
