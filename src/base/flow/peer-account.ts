import type { ByteBudget, ByteShare } from "./byte-budget.ts";
import { WorkTurns } from "./work-turns.ts";

/** The budgets that peers share. */
export interface SharedBudgets {
  /** Incoming bytes. */
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

  constructor({ pullBudget, offerBudget, queueBudget, decodeBudget, streamBudget }: SharedBudgets) {
    this.pulls = pullBudget.share();
    this.offers = offerBudget.share();
    this.queued = queueBudget.share();
    this.decoded = decodeBudget.share();
    this.streams = streamBudget.share();
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
