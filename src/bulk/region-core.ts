import { isSharedArrayBuffer } from "node:util/types";
import { markAsUntransferable } from "node:worker_threads";
import { RpcError } from "../errors/rpc-error.ts";
import { type Port, access as right } from "../fabric/port.ts";
import { assertInside, detached, isDetached, sliceSegments } from "./exposable.ts";
import { unwatchForLeak } from "./leak-watch.ts";
import { addUser, removeUser } from "./memory-users.ts";
import { type Notice, NoticeQueue } from "./notices.ts";
import type { RegionSharing } from "./region-handle.ts";
import type { Access } from "./region-kind.ts";
import { RegionLoan } from "./region-loan.ts";

const rights = {
  read: right.remoteRead,
  write: right.remoteWrite,
  read_write: right.remoteRead | right.remoteWrite,
} as const;

/** Who keeps count of an engine's regions. */
export interface RegionOwner {
  /** It has been disposed, and nobody touches its memory any more. */
  onRegionReleased(region: RegionCore): void;
  /** Gives out handles on its regions. */
  readonly sharing?: RegionSharing;
}

/**
 * What a region is, apart from the object its user holds: the engine keeps this one, so that it can tell when the other has been forgotten.
 *
 * A loan of a slice is a loan of everything the slice was cut from, too.
 */
export class RegionCore {
  readonly access: Access;
  readonly byteLength: number;
  readonly segments: readonly Uint8Array[];
  /** For people: where it was exposed. */
  readonly exposedAt: string;
  readonly #owner: RegionOwner;
  readonly #parent: RegionCore | undefined;
  readonly #loans = new Set<RegionLoan>();
  /** Transfers of this side's own that have it for their local memory. */
  #localUses = 0;
  #disposed = false;
  #revoked = false;
  #released = false;
  #onIdle: (() => void)[] = [];
  readonly #notices = new NoticeQueue();
  /** Queues of its slices that have been read from: they end with it. */
  readonly #sliceNotices = new Set<NoticeQueue>();
  /** Run when it is disposed: what has been promised of it is over. */
  readonly #onDisposed = new Set<() => void>();

  /** `segments` as `exposable` gives them. */
  constructor(
    owner: RegionOwner,
    segments: readonly Uint8Array[],
    access: Access,
    exposedAt = "somewhere",
    parent?: RegionCore,
  ) {
    this.#owner = owner;
    this.#parent = parent;
    this.segments = segments;
    this.access = access;
    this.exposedAt = exposedAt;
    this.byteLength = segments.reduce((sum, { byteLength }) => sum + byteLength, 0);
    if (parent !== undefined) return;
    for (const { buffer } of segments) {
      addUser(buffer);
      if (!isSharedArrayBuffer(buffer)) markAsUntransferable(buffer);
    }
  }

  get disposed(): boolean {
    return this.#disposed || (this.#parent?.disposed ?? false);
  }

  get revoked(): boolean {
    return this.#revoked || (this.#parent?.revoked ?? false);
  }

  get sharing(): RegionSharing | undefined {
    return this.#owner.sharing;
  }

  get loans(): number {
    return this.#loans.size;
  }

  slice(offset: number, length: number): RegionCore {
    this.assertUsable();
    assertInside("slice", offset, length, this.byteLength);
    const segments = sliceSegments(this.segments, offset, length);
    return new RegionCore(this.#owner, segments, this.access, this.exposedAt, this);
  }

  /** `onRevoke` must end the call that the loan is for. */
  lend(port: Port, onRevoke: () => void): RegionLoan {
    this.assertUsable();
    const loan = new RegionLoan(port, this.segments, rights[this.access], onRevoke, (back) => {
      for (let core: RegionCore | undefined = this; core !== undefined; core = core.#parent) {
        core.#loans.delete(back);
        core.#settle();
      }
    });
    for (let core: RegionCore | undefined = this; core !== undefined; core = core.#parent)
      core.#loans.add(loan);
    return loan;
  }

  /** Reads the notices of puts into it. A slice's come here while nobody reads them there. */
  notifications(): AsyncIterableIterator<Notice, undefined> {
    this.assertUsable();
    for (let core = this.#parent; core !== undefined; core = core.#parent)
      core.#sliceNotices.add(this.#notices);
    return this.#notices.read();
  }

  /** A put has landed. False when nobody can be told: too many notices wait, or it has been disposed. */
  notify(notice: Notice): boolean {
    return !this.disposed && this.#heardAt().push(notice);
  }

  /** A put has landed whose notice cannot be given, and its sender cannot be told. */
  loseNotice(): void {
    this.#heardAt().lose();
  }

  /** A slice's own queue while it is read, else that of what it was cut from. */
  #heardAt(): NoticeQueue {
    let core: RegionCore = this;
    while (!core.#notices.hasReader && core.#parent !== undefined) core = core.#parent;
    return core.#notices;
  }

  /** Calls `listener` when it is disposed; returns how to forget that. It must not have been. */
  onDisposed(listener: () => void): () => void {
    for (let core: RegionCore | undefined = this; core !== undefined; core = core.#parent)
      core.#onDisposed.add(listener);
    return () => {
      for (let core: RegionCore | undefined = this; core !== undefined; core = core.#parent)
        core.#onDisposed.delete(listener);
    };
  }

  /** A transfer of this side's own begins to use the memory; it ends with `endLocalUse`. */
  beginLocalUse(): void {
    for (let core: RegionCore | undefined = this; core !== undefined; core = core.#parent) core.#localUses++;
  }

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
    for (const notices of [this.#notices, ...this.#sliceNotices]) notices.close();
    for (const listener of [...this.#onDisposed]) listener();
    this.#settle();
  }

  revoke(): Promise<void> {
    this.#revoked = true;
    this.dispose();
    const idle = this.idle();
    // A copy: what a call does when it ends is not ours to know.
    for (const loan of [...this.#loans]) loan.revoke();
    return idle;
  }

  /** Resolves when nobody can touch the memory by this region any more. */
  idle(): Promise<void> {
    return new Promise((resolve) => {
      this.#onIdle.push(resolve);
      this.#settle();
    });
  }

  /** @throws RpcError `failed_precondition` when it has been disposed or its memory is gone. */
  assertUsable(): void {
    if (this.disposed) {
      throw new RpcError({
        code: "failed_precondition",
        message: `the region has been ${this.revoked ? "revoked" : "disposed"}`,
        origin: "local",
      });
    }
    const gone = this.segments.findIndex(({ buffer }) => isDetached(buffer));
    if (gone >= 0)
      throw detached(this.segments.length === 1 ? "the region's memory" : `the region's segment ${gone}`);
  }

  #settle(): void {
    if (this.#loans.size > 0 || this.#localUses > 0) return;
    if (this.#disposed && !this.#released) {
      this.#released = true;
      if (this.#parent === undefined) {
        for (const { buffer } of this.segments) removeUser(buffer);
        this.#owner.onRegionReleased(this);
      }
    }
    const waiting = this.#onIdle;
    this.#onIdle = [];
    for (const resolve of waiting) resolve();
  }
}
