import type { RpcCode } from "../base/errors/code.ts";
import { RpcError } from "../base/errors/rpc-error.ts";
import { channels, publisherHere } from "../base/observe/channels.ts";
import type { CallOperations, CallSettler } from "../call/call-operations.ts";
import { isDamaged } from "../fabric/libfabric/file-memory.ts";
import type { Port } from "../fabric/port.ts";
import { useAll } from "../memory/memory-users.ts";
import { putNotificationBytes, putNotificationData } from "../memory/put-notification.ts";
import { assertFixed, hold, holdTarget } from "../memory/registration-cache.ts";
import { builtin } from "../wire/builtin.ts";
import { requestInCall } from "./control/control-request.ts";
import type { PeerLink, TransferScope } from "./control/peer-link.ts";
import type { ChunkListener, SealedMover } from "./control/sealed-bulk.ts";
import { type LocalSegment, planExtents, type RegisteredPart } from "./extents.ts";
import { pacingOf } from "./pacing.ts";
import { Scheduler } from "./scheduler.ts";
import { givenUp, lostLocally, refused, refusedByOwner, stoppedEarly, unpinned } from "./transfer-error.ts";
import type { PutOptions } from "./transfer-options.ts";
import { assertApart, type CheckedPart } from "./transfer-part.ts";
import { verify } from "./verify-checksum.ts";

/** Progress of a transfer. */
export interface TransferProgress {
  /** Bytes that have certainly moved. */
  readonly bytes: number;
  /** Bytes still to move. */
  readonly remaining: number;
  /** Average since the transfer began. */
  readonly bytesPerSecond: number;
}

/**
 * One transfer, from its checks to its end. It has two ends: it *settles* with its promise, and *lands* when no chunk
 * is in flight. Until it has landed, it holds the local memory, and the response of the call waits.
 */
export class TransferOperation implements ChunkListener<number | RpcError> {
  readonly op: "get" | "put";
  readonly peer: PeerLink;
  readonly #scope: TransferScope;
  readonly #options: PutOptions;
  #check: (() => readonly CheckedPart[]) | undefined;
  /** The write carries the put notification to its target. */
  #carriesNotification = false;
  parts: readonly CheckedPart[] = [];
  /** Bytes to move. */
  total = 0;
  /** Bytes that have certainly moved. */
  moved = 0;
  #chunked: { stop(): void } | undefined;
  #held: { release(): void }[] = [];
  #settler!: CallSettler<number>;
  #settled = false;
  #landed = false;
  #onLanded: (() => void)[] = [];
  #onStep: (() => void)[] = [];
  #listening = false;
  #cancelTimer: (() => void) | undefined;
  /** The provider rejected the transfer, and the owner is being asked why. */
  #refusal: RpcError | undefined;
  /** Undefined where the channel had no subscriber when this transfer began. */
  readonly #publish = publisherHere(channels.transfer);
  #beganMs = 0;
  #settledMs = 0;

  /** `check` returns the parts, or throws the error that the transfer rejects with. */
  constructor(
    op: "get" | "put",
    peer: PeerLink,
    scope: TransferScope,
    options: PutOptions,
    check: () => readonly CheckedPart[],
  ) {
    this.op = op;
    this.peer = peer;
    this.#scope = scope;
    this.#options = options;
    this.#check = check;
  }

  /** Records its failure when it is not awaited. */
  get operations(): CallOperations | undefined {
    return this.#scope.operations;
  }

  /** Posts the first chunks, or settles at once. Never throws. */
  begin(settler: CallSettler<number>): void {
    this.#settler = settler;
    try {
      this.#begin();
    } catch (error) {
      this.#settle();
      this.#land();
      settler.reject(error);
    }
  }

  #begin(): void {
    const check = this.#check as () => readonly CheckedPart[];
    this.#check = undefined;
    const parts = check();
    this.parts = parts;
    this.total = parts.reduce((sum, { bytes }) => sum + bytes, 0);
    assertApart(this.op, parts);
    const { signal } = this.#options;
    if (signal?.aborted === true) throw givenUp(this, signal.reason);
    this.#scope.beginTransfer();
    if (this.total === 0) {
      this.#scope.endTransfer();
      this.#land();
      this.#listen();
      this.#complete();
      return;
    }
    let begun = 0;
    try {
      for (const { region } of parts) {
        region?.beginLocalUse();
        begun++;
      }
      this.#post(parts);
    } catch (error) {
      this.#letGo(begun);
      this.#scope.endTransfer();
      throw error;
    }
    if (!this.#settled) this.#listen();
    this.peer.services.progress.wake();
  }

  #post(parts: readonly CheckedPart[]): void {
    const { port, address, clock, sealedMover } = this.peer;
    this.#beganMs = clock.now();
    if (sealedMover !== undefined) return this.#postSealed(sealedMover, parts);
    const pacing = pacingOf(port, this.#options);
    const registered = this.#register(port, parts);
    const extents = planExtents(registered);
    const isOne = extents.length === 1 && this.total <= pacing.chunkBytes;
    const notification = isOne ? this.#carriedNotification() : undefined;
    this.#carriesNotification = notification !== undefined;
    this.#chunked = Scheduler.of(port).start({
      op: this.op === "get" ? "read" : "write",
      address,
      extents,
      pacing,
      listener: this,
      notification,
    });
  }

  /** The parts with their local memory registered. @throws RpcError where the port cannot write to some of it. */
  #register(port: Port, parts: readonly CheckedPart[]): RegisteredPart[] {
    const registered: RegisteredPart[] = [];
    for (const { remote, offset, bytes, local } of parts) {
      const segments: LocalSegment[] = [];
      for (const view of local) {
        const held = this.op === "get" ? holdTarget(port, view) : hold(port, view);
        if (held === undefined) throw unpinned(this);
        this.#held.push(held);
        segments.push({ memory: held.memory, offset: held.offset, bytes: view.byteLength });
      }
      registered.push({
        remote: remote.segments,
        remoteOffset: offset,
        local: segments,
        localOffset: 0,
        bytes,
      });
    }
    return registered;
  }

  #postSealed(mover: SealedMover, parts: readonly CheckedPart[]): void {
    // The memory stays in use until the transfer has landed, even where it is not registered.
    for (const { local } of parts) for (const view of local) assertFixed(view);
    this.#held.push(...parts.map(({ local }) => useAll(local)));
    this.#chunked = mover.start({
      op: this.op,
      parts: parts.map(({ remote: { grantKey, grantOffset }, offset, local }) => ({
        key: grantKey,
        offset: grantOffset + offset,
        local,
      })),
      chunkBytes: this.#options.chunkBytes,
      deadlineMs: this.#scope.deadlineMs,
      listener: this,
    });
  }

  // ---- the listener of the chunked transfer -----------------------------------------------------------------------

  stopped(): boolean {
    return this.#settled || !this.#scope.open;
  }

  onMoved(bytes: number): void {
    this.moved += bytes;
    this.#step();
  }

  onEnded(failure: number | RpcError): void {
    this.#letGo(this.parts.length);
    this.peer.services.counters[this.op === "get" ? "bytesGot" : "bytesPut"] += this.moved;
    if (!this.#settled && this.moved === this.total) this.#complete();
    else if (failure === 0) this.#fail(stoppedEarly(this));
    else if (typeof failure !== "number") this.#fail(refusedByOwner(this, failure));
    // Even when the reason is not awaited: a rejected transfer may break the connection, with everything in flight on
    // it.
    else this.#refuse(failure);
    this.#land();
    // The last step: it may send the terminal frame.
    this.#scope.endTransfer();
  }

  /** The put notification as data of the write. Undefined without one, or if it follows as a message. */
  #carriedNotification(): bigint | undefined {
    const { notify, checksum } = this.#options;
    const [part] = this.parts;
    if (notify === undefined || checksum !== undefined || part === undefined) return undefined;
    // The providers of both sides must support it, and they may differ.
    const { port, peerImmediateBytes } = this.peer;
    if (port.immediateBytes !== putNotificationBytes || peerImmediateBytes !== putNotificationBytes)
      return undefined;
    return putNotificationData(part.remote.grantKey, notify);
  }

  /** All bytes are in place. The remaining steps need no memory; until they are done, the transfer can be stopped. */
  #complete(): void {
    if (this.#hasLostLocally) return this.#fail(lostLocally(this));
    const { notify, checksum } = this.#options;
    if (checksum === undefined && (notify === undefined || this.#carriesNotification)) return this.#succeed();
    this.#verifyAndNotify().then(
      () => {
        if (!this.#settled) this.#succeed();
      },
      (error: unknown) => this.#fail(error),
    );
  }

  async #verifyAndNotify(): Promise<void> {
    const { notify, checksum } = this.#options;
    if (checksum !== undefined) await verify(this.op, this.#scope, this.peer, this.parts);
    if (notify === undefined || this.#carriesNotification) return;
    const remote = this.parts[0]?.remote;
    // A region of no bytes has no key, so its owner could not find it.
    if (remote === undefined || remote.grantKey === 0n) {
      throw new RpcError({
        code: "invalid_argument",
        message: `${this.op}: the option notify needs a region of at least 1 byte`,
      });
    }
    await requestInCall(this.#scope, this.peer, builtin.putNotification, [
      remote.grantKey,
      notify,
      this.total,
    ]);
  }

  #succeed(): void {
    this.#settle();
    this.#tell("ok");
    this.#settler.resolve(this.total);
  }

  /** A peer must not take zeros of a truncated file for its bytes, and neither must this side. */
  get #hasLostLocally(): boolean {
    return this.parts.some(({ local }) => local.some(({ buffer }) => isDamaged(buffer)));
  }

  #refuse(status: number): void {
    if (this.#hasLostLocally) return this.#fail(lostLocally(this));
    const { error, explained } = refused(this, status);
    if (explained === undefined) return this.#fail(error);
    this.#refusal = error;
    // The call's end or the user's signal may come first.
    explained.then((reason) => {
      if (!this.#settled) this.#fail(reason);
    });
  }

  // ---- the two ends -----------------------------------------------------------------------------------------------

  #listen(): void {
    const { signal, timeoutMs } = this.#options;
    this.#listening = true;
    this.#scope.signal.addEventListener("abort", this.#onCallAborted, { once: true });
    signal?.addEventListener("abort", this.#onAborted, { once: true });
    if (timeoutMs !== undefined)
      this.#cancelTimer = this.peer.clock.timer(timeoutMs, () => this.#fail(givenUp(this, timeoutMs)), true);
  }

  readonly #onCallAborted = (): void => {
    const { reason } = this.#scope.signal;
    // A session that is lost while the owner is asked broke because of this rejection.
    const lost = this.#refusal !== undefined && reason instanceof RpcError && reason.code === "unavailable";
    this.#fail(lost ? this.#refusal : reason);
  };
  readonly #onAborted = (): void => this.#fail(givenUp(this, this.#options.signal?.reason));

  #fail(error: unknown): void {
    if (this.#settled) return;
    this.#settle();
    this.#tell(error instanceof RpcError ? error.code : "internal");
    this.#settler.reject(error);
    this.#chunked?.stop();
  }

  #settle(): void {
    this.#settled = true;
    this.#settledMs = this.peer.clock.now();
    if (this.#listening) {
      this.#scope.signal.removeEventListener("abort", this.#onCallAborted);
      this.#options.signal?.removeEventListener("abort", this.#onAborted);
      this.#cancelTimer?.();
    }
    this.#step();
  }

  #tell(code: RpcCode | "ok"): void {
    if (this.#publish === undefined) return;
    const { op, moved: bytes } = this;
    const tookMs = this.#beganMs === 0 ? 0 : this.#settledMs - this.#beganMs;
    this.#publish({ op, peer: this.peer.peerName, callId: this.#scope.id, bytes, tookMs, code });
  }

  #letGo(begun: number): void {
    for (const held of this.#held) held.release();
    this.#held = [];
    for (let i = 0; i < begun; i++) this.parts[i]?.region?.endLocalUse();
  }

  #land(): void {
    this.#landed = true;
    for (const resolve of this.#onLanded) resolve();
    this.#onLanded = [];
  }

  async landed(): Promise<number> {
    if (!this.#landed) await new Promise<void>((resolve) => this.#onLanded.push(resolve));
    return this.moved;
  }

  // ---- listeners --------------------------------------------------------------------------------------------------

  #step(): void {
    if (this.#onStep.length === 0) return;
    const waiting = this.#onStep;
    this.#onStep = [];
    for (const resolve of waiting) resolve();
  }

  async *steps(): AsyncGenerator<TransferProgress, undefined> {
    for (let seen = 0; ; ) {
      if (this.moved !== seen) {
        seen = this.moved;
        yield this.#progress();
      } else if (this.#settled) return;
      else await new Promise<void>((resolve) => this.#onStep.push(resolve));
    }
  }

  #progress(): TransferProgress {
    const untilMs = this.#settled ? this.#settledMs : this.peer.clock.now();
    const seconds = (untilMs - this.#beganMs) / 1000;
    return {
      bytes: this.moved,
      remaining: this.total - this.moved,
      bytesPerSecond: seconds > 0 ? this.moved / seconds : 0,
    };
  }
}
