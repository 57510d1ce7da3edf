import { Outlier } from "../balance/outlier.ts";
import type { Candidate } from "../balance/policy.ts";
import { slowStartWeight } from "../balance/slow-start.ts";
import type { Clock } from "../call/clock.ts";
import type { ResolvedGroupOptions } from "./group-options.ts";
import type { Peer } from "./peer.ts";
import { pauseMs } from "./reconnect.ts";

/** One peer of a group: it is brought back when it is lost, for as long as it is a member. */
export class GroupMember implements Candidate {
  readonly peer: Peer;
  readonly outlier: Outlier;
  readonly #options: ResolvedGroupOptions;
  readonly #clock: Clock;
  /** Something changed that decides who is ready. */
  readonly #onChange: () => void;
  readonly #offs: (() => void)[];
  #attempt = 0;
  #cancelTry: (() => void) | undefined;
  #sinceMs = Number.NEGATIVE_INFINITY;
  #retired = false;

  constructor(peer: Peer, options: ResolvedGroupOptions, clock: Clock, onChange: () => void) {
    this.peer = peer;
    this.#options = options;
    this.#clock = clock;
    this.#onChange = onChange;
    this.outlier = new Outlier(options.ejection);
    const arrived = () => {
      this.#attempt = 0;
      this.#sinceMs = clock.now();
      onChange();
    };
    peer.onLanesChanged = onChange;
    this.#offs = [
      peer.on("connected", arrived),
      peer.on("back", ({ after }) => (after === "lost" ? arrived() : onChange())),
      peer.on("suspect", onChange),
      peer.on("draining", onChange),
      peer.on("lost", () => {
        onChange();
        this.#tryLater();
      }),
    ];
  }

  get name(): string {
    return this.peer.url;
  }

  get inFlight(): number {
    return this.peer.callsOut + this.peer.callsWaiting;
  }

  get weight(): number {
    const { slowStartMs } = this.#options;
    return slowStartMs === 0 ? 1 : slowStartWeight(this.#clock.now(), this.#sinceMs, slowStartMs);
  }

  /** It is being connected to, and no try has failed since it came or was last connected. */
  get begins(): boolean {
    return this.#attempt === 0 && this.peer.state === "connecting";
  }

  /** Connects, and goes on trying in the background until it is connected or no member any more. Rejects with what the first try failed with. */
  async connect(): Promise<void> {
    this.#cancelTry?.();
    this.#cancelTry = undefined;
    if (this.#retired) return;
    try {
      const session = await this.peer.session();
      // It may have ended before anybody could be told of it, so nobody is told of its loss.
      if (session.state !== "open") this.#tryLater();
    } catch (error) {
      this.#tryLater();
      throw error;
    }
  }

  #tryLater(): void {
    if (this.#retired || this.#cancelTry !== undefined) return;
    this.#cancelTry = this.#clock.timer(
      pauseMs(this.#attempt++, this.#options.reconnect),
      () => void this.connect().catch(() => {}),
      true,
    );
    this.#onChange();
  }

  /** No member any more: no new calls, closed when those in flight have ended. */
  retire(onDone: () => void): void {
    this.leave();
    const closeIfDone = (): void => {
      // Built-in requests count here: what has been borrowed from it, or by it, is given back first.
      if (this.peer.idle) {
        this.peer.close();
        onDone();
      } else this.#cancelTry = this.#clock.timer(retiredLookMs, closeIfDone, true);
    };
    closeIfDone();
  }

  close(): void {
    this.leave();
    this.peer.close();
  }

  /** Not kept any more. */
  leave(): void {
    this.#retired = true;
    this.#cancelTry?.();
    this.#cancelTry = undefined;
    for (const off of this.#offs) off();
    this.peer.onLanesChanged = () => {};
    this.#onChange();
  }
}

/** How often a peer that is no member any more is looked at, until its last call has ended. */
const retiredLookMs = 50;
