import type { Client, Engine, Peer } from "cinnabar/standard";
import { Packets } from "./packets-service.ts";

/** How many members this one is connected to at a time. In larger groups most probes open a connection. */
export const maxLinks = 128;

/** Messages to one member that have not left: it is being connected to, or takes nothing. Further ones are lost. */
const maxUnsent = 16;

/** Messages to one member that it has not acknowledged. */
const maxUnacknowledged = 64;

interface Link {
  readonly peer: Peer;
  readonly client: Client<typeof Packets>;
  unsent: number;
}

/** Connections to other members, made by the first message. Of too many the one that was used longest ago is closed. */
export class Links {
  readonly #engine: Engine;
  readonly #packetTimeoutMs: number;
  readonly #onSendError: (reason: string) => void;
  /** By address, the one that was used longest ago first. */
  readonly #links = new Map<string, Link>();
  readonly #unsent = new Set<Promise<void>>();

  /** @param onSendError a message is lost */
  constructor(engine: Engine, packetTimeoutMs: number, onSendError: (reason: string) => void) {
    this.#engine = engine;
    this.#packetTimeoutMs = packetTimeoutMs;
    this.#onSendError = onSendError;
  }

  get size(): number {
    return this.#links.size;
  }

  send(address: string, bytes: Uint8Array): void {
    let link: Link;
    try {
      link = this.#linkTo(address);
    } catch (error) {
      // An address that this process cannot reach, as that of a fabric that it does not know.
      this.#onSendError(messageOf(error));
      return;
    }
    if (link.unsent >= maxUnsent) {
      this.#onSendError(`${address}: ${maxUnsent} messages wait to be sent`);
      return;
    }
    link.unsent += 1;
    const sent = link.client.packet(bytes).catch((error) => this.#onSendError(messageOf(error)));
    this.#unsent.add(sent);
    sent.then(() => {
      link.unsent -= 1;
      this.#unsent.delete(sent);
    });
  }

  /** Resolves when every message has left or is lost, after `packetTimeoutMs` at most. */
  async flush(): Promise<void> {
    await Promise.all(this.#unsent);
  }

  #linkTo(address: string): Link {
    const link = this.#links.get(address) ?? this.#open(address);
    this.#links.delete(address);
    this.#links.set(address, link);
    if (this.#links.size > maxLinks) this.#closeOldest();
    return link;
  }

  #open(address: string): Link {
    const peer = this.#engine.lazyPeer(address, {
      window: { maxInFlight: maxUnacknowledged },
    });
    const client = peer.client(Packets, { timeoutMs: this.#packetTimeoutMs, whenFull: "fail" });
    return { peer, client, unsent: 0 };
  }

  #closeOldest(): void {
    for (const [address, { peer }] of this.#links) {
      this.#links.delete(address);
      peer.close();
      return;
    }
  }
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
