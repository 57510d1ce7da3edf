import { ByteBudget, type ByteShare } from "./byte-budget.ts";
import type { EngineLimits } from "./engine-limits.ts";
import { WorkTurns } from "./work-turns.ts";

/** The budgets of an engine that its peers share. */
export class SharedBudgets {
  /** Incoming bytes: bodies that are pulled, and what this engine holds of them. */
  readonly pulls: ByteBudget;
  /** Bodies kept for peers to pull. */
  readonly offers: ByteBudget;
  /** Encoded frames that wait to be sent. */
  readonly queued: ByteBudget;
  /** Memory of decoded values that peers have sent. */
  readonly decoded: ByteBudget;
  /** Windows of streams: bytes of items that this engine may hold for peers before consumers take them. */
  readonly streams: ByteBudget;

  constructor(limits: EngineLimits) {
    this.pulls = new ByteBudget(limits.maxPullBytes);
    this.offers = new ByteBudget(limits.maxOfferBytes);
    this.queued = new ByteBudget(limits.maxQueuedBytesInAll);
    this.decoded = new ByteBudget(limits.maxDecodedBytes);
    this.streams = new ByteBudget(limits.maxStreamBytes);
  }
}

/** The resources of this engine that one peer holds, over all sessions with it. */
export class PeerAccount {
  /** Its sessions that have not ended, and its handshakes that have not proven an identity. */
  sessions = 0;
  strangers = 0;
  /** When its sessions were last probed. */
  probedMs = Number.NEGATIVE_INFINITY;
  readonly pulls: ByteShare;
  readonly offers: ByteShare;
  readonly queued: ByteShare;
  readonly decoded: ByteShare;
  readonly streams: ByteShare;
  /** Pulled bodies are decoded and handed on in these turns. */
  readonly turns = new WorkTurns();

  constructor({ pulls, offers, queued, decoded, streams }: SharedBudgets) {
    this.pulls = pulls.share();
    this.offers = offers.share();
    this.queued = queued.share();
    this.decoded = decoded.share();
    this.streams = streams.share();
  }

  /** The engine holds nothing for the peer. */
  get idle(): boolean {
    const { pulls, offers, queued, decoded, streams, sessions, strangers } = this;
    if (sessions + strangers > 0) return false;
    return pulls.bytes + offers.bytes + queued.bytes + decoded.bytes + streams.bytes === 0;
  }
}

/**
 * The accounts of an engine's peers. A peer is the endpoint at which it can be reached. It cannot forge that for long,
 * because its welcome goes there. Each session that this engine opens has a separate account, because the engine chose
 * to open it.
 */
export class PeerAccounts {
  readonly #budgets: SharedBudgets;
  readonly #accounts = new Map<string, PeerAccount>();

  constructor(budgets: SharedBudgets) {
    this.#budgets = budgets;
  }

  get size(): number {
    return this.#accounts.size;
  }

  /** The account of the peer that the port at `url` reaches at `address`. */
  at(url: string, address: Uint8Array): PeerAccount {
    const key = `${url} ${Buffer.from(address.buffer, address.byteOffset, address.byteLength).toString("hex")}`;
    let account = this.#accounts.get(key);
    if (account === undefined) {
      if (this.#accounts.size >= this.#sweepAt) this.#sweep();
      account = new PeerAccount(this.#budgets);
      this.#accounts.set(key, account);
    }
    return account;
  }

  /** A separate account. */
  own(): PeerAccount {
    return new PeerAccount(this.#budgets);
  }

  /** Resources of a peer may return long after its sessions: accounts are swept when their number has doubled. */
  #sweepAt = leastSwept;

  #sweep(): void {
    for (const [key, account] of this.#accounts) if (account.idle) this.#accounts.delete(key);
    this.#sweepAt = Math.max(leastSwept, 2 * this.#accounts.size);
  }
}

const leastSwept = 64;
