import type { ByteBudget, ByteShare } from "./byte-budget.ts";
import { WorkTurns } from "./work-turns.ts";

/** The budgets that peers share. */
export interface SharedBudgets {
  /** Bytes on their way in. */
  readonly pullBudget: ByteBudget;
  /** Bodies kept for peers to pull. */
  readonly offerBudget: ByteBudget;
  /** Encoded frames that wait to be sent. */
  readonly queueBudget: ByteBudget;
  /** Memory of decoded values that peers have sent. */
  readonly decodeBudget: ByteBudget;
  /** Windows of streams. */
  readonly streamBudget: ByteBudget;
}

/** What one peer makes this engine hold, over all sessions with it. */
export class PeerAccount {
  /** Its sessions that have not ended, and its handshakes that have not proven who it is. */
  sessions = 0;
  strangers = 0;
  /** When its sessions were last asked for a sign of life. */
  probedMs = Number.NEGATIVE_INFINITY;
  readonly pulls: ByteShare;
  readonly offers: ByteShare;
  readonly queued: ByteShare;
  readonly decoded: ByteShare;
  readonly streams: ByteShare;
  /** Bodies that have been pulled are decoded and handed on in these. */
  readonly turns = new WorkTurns();

  constructor({ pullBudget, offerBudget, queueBudget, decodeBudget, streamBudget }: SharedBudgets) {
    this.pulls = pullBudget.share();
    this.offers = offerBudget.share();
    this.queued = queueBudget.share();
    this.decoded = decodeBudget.share();
    this.streams = streamBudget.share();
  }

  /** Nothing of the peer is held any more. */
  get idle(): boolean {
    const { pulls, offers, queued, decoded, streams, sessions, strangers } = this;
    if (sessions + strangers > 0) return false;
    return pulls.bytes + offers.bytes + queued.bytes + decoded.bytes + streams.bytes === 0;
  }
}

/**
 * The accounts of an engine's peers. A peer is the endpoint that it can be reached at: that is what it cannot lie about
 * for long, because its welcome goes there. Sessions that this engine opens have an account each: it chose to open
 * them.
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

  /** An account of its own. */
  own(): PeerAccount {
    return new PeerAccount(this.#budgets);
  }

  /** What peers hold may come back long after their sessions: accounts are looked through when they have doubled. */
  #sweepAt = leastSwept;

  #sweep(): void {
    for (const [key, account] of this.#accounts) if (account.idle) this.#accounts.delete(key);
    this.#sweepAt = Math.max(leastSwept, 2 * this.#accounts.size);
  }
}

const leastSwept = 64;
