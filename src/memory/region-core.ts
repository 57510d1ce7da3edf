import { isSharedArrayBuffer } from "node:util/types";
import { RpcError } from "../base/errors/rpc-error.ts";
import { type Clock, realClock } from "../base/time/clock.ts";
import { isDamaged } from "../fabric/libfabric/file-memory.ts";
import { access as right } from "../fabric/port.ts";
import {
  assertInside,
  coveredBytes,
  detached,
  forbidTransfer,
  isDetached,
  lostBytes,
  sliceSegments,
} from "./exposable.ts";
import { RegionGrant, type UsedRegistration, type Withdrawal } from "./grant.ts";
import { unwatchForLeak } from "./leak-watch.ts";
import { addUser, removeUser } from "./memory-users.ts";
import { type PutNotification, PutNotificationQueue } from "./put-notification.ts";
import type { Access, RegionKeys } from "./region-kind.ts";
import {
  type KeyIssuer,
  type LastingRegistration,
  type LastingRegistrations,
  RegionRegistration,
  unregistered,
} from "./region-registration.ts";

const rights = {
  read: right.remoteRead,
  write: right.remoteWrite,
  read_write: right.remoteRead | right.remoteWrite,
} as const;

/**
 * How long a wait for a region's memory lasts while peers have not answered the end of their calls. A lost peer never
 * answers. A living one answers within its heartbeat, unless its thread computes.
 */
const patienceMs = 10_000;

/** The rest of a region's memory after its owner has waited. */
export interface QuarantinedMemory {
  /**
   * How many bytes of the region a lost or silent peer may still touch. 0: no peer can reach the memory. Otherwise do
   * not use it again before `region.grants` is 0.
   */
  readonly quarantinedBytes: number;
}

/** How a region was exposed. */
export interface RegionOrigin {
  /** How long its keys live. Default "call". */
  readonly keys?: RegionKeys | undefined;
  /** Where it was exposed, for warnings. */
  readonly at?: string | undefined;
  /** The region that this slice was cut from. */
  readonly parent?: RegionCore;
}

/** Is notified of the end of an engine's regions. */
export interface RegionListener {
  /** For the wait for peers that do not answer. The real time by default, because their liveness depends on it. */
  readonly clock?: Clock;
  /** The region was disposed, and its memory is unused. */
  onRegionReleased(region: RegionCore): void;
}

/**
 * The state of a region, apart from the object that its user holds. The engine keeps it, so that it notices when the
 * user's object is lost.
 *
 * A grant of a slice counts as a grant of the regions that the slice was cut from.
 */
export class RegionCore {
  readonly access: Access;
  readonly byteLength: number;
  readonly segments: readonly Uint8Array[];
  readonly exposedAt: string;
  readonly #listener: RegionListener;
  readonly #parent: RegionCore | undefined;
  readonly #keys: RegionKeys;
  readonly #grants = new Set<RegionGrant>();
  /** Registrations that outlive calls, one for each session that was granted the region. */
  readonly #lasting = new Set<LastingRegistration>();
  /** Transfers of this engine with the region as local memory. */
  #localUses = 0;
  #disposed = false;
  #revoked = false;
  #released = false;
  #waiting: ((left: QuarantinedMemory) => void)[] = [];
  /** Runs while a caller waits and only silent peers hold the region. */
  #cancelPatience: (() => void) | undefined;
  readonly #notifications = new PutNotificationQueue();
  /** Queues of its slices with a reader: they end with the region. */
  readonly #sliceNotifications = new Set<PutNotificationQueue>();
  /** Called when the region is disposed. */
  readonly #onDisposed = new Set<() => void>();

  /** `segments` as `exposable` gives them. */
  constructor(
    listener: RegionListener,
    segments: readonly Uint8Array[],
    access: Access,
    { keys = "call", at = "somewhere", parent }: RegionOrigin = {},
  ) {
    this.#listener = listener;
    this.#parent = parent;
    this.#keys = keys;
    this.segments = segments;
    this.access = access;
    this.exposedAt = at;
    this.byteLength = segments.reduce((sum, { byteLength }) => sum + byteLength, 0);
    if (parent !== undefined) return;
    for (const { buffer } of segments) {
      addUser(buffer);
      if (!isSharedArrayBuffer(buffer)) forbidTransfer(buffer);
    }
  }

  get disposed(): boolean {
    return this.#disposed || (this.#parent?.disposed ?? false);
  }

  get revoked(): boolean {
    return this.#revoked || (this.#parent?.revoked ?? false);
  }

  /** Whether it shows a file that has lost bytes. */
  get isDamaged(): boolean {
    return this.segments.some(({ buffer }) => isDamaged(buffer));
  }

  get grants(): number {
    return this.#grants.size;
  }

  slice(offset: number, length: number): RegionCore {
    this.assertUsable();
    assertInside("slice", offset, length, this.byteLength);
    const segments = sliceSegments(this.segments, offset, length);
    return new RegionCore(this.#listener, segments, this.access, { at: this.exposedAt, parent: this });
  }

  /**
   * Grants the region to a peer. `onRevoke` must end the call that holds the grant. `lasting`: the registrations of the
   * peer's session that serve many calls, for a region with keys that outlive calls.
   *
   * @throws RpcError as `assertUsable`, and of the provider.
   */
  grantTo(keys: KeyIssuer, onRevoke: (why: Withdrawal) => void, lasting?: LastingRegistrations): RegionGrant {
    this.assertUsable();
    const onBack = (back: RegionGrant) => {
      for (let core: RegionCore | undefined = this; core !== undefined; core = core.#parent) {
        core.#grants.delete(back);
        core.#settle();
      }
    };
    const onGivenUp = () => {
      for (let core: RegionCore | undefined = this; core !== undefined; core = core.#parent) core.#settle();
    };
    const registration = this.#registrationFor(keys, keys === unregistered ? undefined : lasting);
    const grant = new RegionGrant(registration, this.segments, { onRevoke, onBack, onGivenUp });
    for (let core: RegionCore | undefined = this; core !== undefined; core = core.#parent)
      core.#grants.add(grant);
    return grant;
  }

  #registrationFor(keys: KeyIssuer, lasting: LastingRegistrations | undefined): UsedRegistration {
    const allowed = rights[this.access];
    if (lasting === undefined || this.#keys === "call")
      return new RegionRegistration(keys, this.segments, allowed);
    const registration = lasting.of(this, allowed, (gone) => {
      this.#lasting.delete(gone);
      this.#settle();
    });
    this.#lasting.add(registration);
    return registration.use();
  }

  /** Reads the put notifications. Those of a slice come here while the slice has no reader. */
  notifications(): AsyncIterableIterator<PutNotification, undefined> {
    this.assertUsable();
    for (let core = this.#parent; core !== undefined; core = core.#parent)
      core.#sliceNotifications.add(this.#notifications);
    return this.#notifications.read();
  }

  /** A put has landed. False when it cannot be delivered: too many notifications wait, or the region was disposed. */
  notify(notification: PutNotification): boolean {
    return !this.disposed && this.#queueOf().push(notification);
  }

  /** A put has landed, but its notification is lost, and its sender gets no answer. */
  losePutNotification(): void {
    this.#queueOf().lose();
  }

  /** The queue of the slice while it has a reader, else the queue of its parent region. */
  #queueOf(): PutNotificationQueue {
    let core: RegionCore = this;
    while (!core.#notifications.hasReader && core.#parent !== undefined) core = core.#parent;
    return core.#notifications;
  }

  /**
   * Calls `listener` when the region is disposed; the returned function removes it. The region must not be disposed
   * yet.
   */
  onDisposed(listener: () => void): () => void {
    for (let core: RegionCore | undefined = this; core !== undefined; core = core.#parent)
      core.#onDisposed.add(listener);
    return () => {
      for (let core: RegionCore | undefined = this; core !== undefined; core = core.#parent)
        core.#onDisposed.delete(listener);
    };
  }

  /** A transfer of this engine begins to use the memory, until `endLocalUse`. @throws RpcError as `assertUsable`. */
  beginLocalUse(): void {
    this.assertUsable();
    for (let core: RegionCore | undefined = this; core !== undefined; core = core.#parent) core.#localUses++;
  }

  /** The transfer has ended. */
  endLocalUse(): void {
    for (let core: RegionCore | undefined = this; core !== undefined; core = core.#parent) {
      core.#localUses--;
      core.#settle();
    }
  }

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    unwatchForLeak(this);
    for (const queue of [this.#notifications, ...this.#sliceNotifications]) queue.close();
    for (const listener of [...this.#onDisposed]) listener();
    for (const registration of [...this.#lasting]) registration.onRegionDisposed();
    this.#settle();
  }

  revoke(): Promise<QuarantinedMemory> {
    this.#revoked = true;
    this.dispose();
    const idle = this.idle();
    // A copy: a call that ends may change the set.
    for (const grant of [...this.#grants]) grant.revoke();
    return idle;
  }

  /** Ends the calls that hold it where it is damaged: no peer must take zeros for the file's bytes. */
  endIfDamaged(): void {
    if (!this.isDamaged) return;
    for (const grant of [...this.#grants]) grant.revoke("damaged");
    for (const registration of [...this.#lasting]) registration.onRegionDisposed();
  }

  /**
   * Resolves when no peer can reach the memory through this region, or `patienceMs` after the last holding call was
   * abandoned.
   */
  idle(): Promise<QuarantinedMemory> {
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
      this.#settle();
    });
  }

  /**
   * @throws RpcError `failed_precondition` when the region was disposed or its memory was detached, `data_loss` when it
   * is damaged.
   */
  assertUsable(): void {
    if (this.disposed) {
      throw new RpcError({
        code: "failed_precondition",
        message: `the region has been ${this.revoked ? "revoked" : "disposed"}`,
      });
    }
    const gone = this.segments.findIndex(({ buffer }) => isDetached(buffer));
    if (gone >= 0)
      throw detached(this.segments.length === 1 ? "the region's memory" : `the region's segment ${gone}`);
    if (this.isDamaged) throw lostBytes("the region's memory");
  }

  #settle(): void {
    const isReachable = this.#grants.size > 0 || (this.#disposed && this.#lasting.size > 0);
    if (isReachable || this.#localUses > 0) return this.#beginPatience();
    this.#cancelPatience?.();
    this.#cancelPatience = undefined;
    if (this.#disposed && !this.#released) {
      this.#released = true;
      if (this.#parent === undefined) {
        for (const { buffer } of this.segments) removeUser(buffer);
        this.#listener.onRegionReleased(this);
      }
    }
    this.#tell(0);
  }

  /** Peers that do not answer bound the wait. */
  #beginPatience(): void {
    if (this.#cancelPatience !== undefined || this.#waiting.length === 0) return;
    // Transfers of this side end by themselves.
    if (this.#localUses > 0 && !this.revoked) return;
    for (const { wanted } of this.#grants) if (wanted) return;
    // In the foreground: a process must not end while it waits for this.
    this.#cancelPatience = (this.#listener.clock ?? realClock).timer(patienceMs, () => {
      this.#cancelPatience = undefined;
      const lent = [...this.#grants, ...this.#lasting].flatMap(({ memory }) => memory);
      this.#tell(this.#localUses > 0 ? this.byteLength : coveredBytes(lent));
    });
  }

  #tell(quarantinedBytes: number): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve({ quarantinedBytes });
  }
}
