import { once } from "node:events";
import { setTimeout as pause } from "node:timers/promises";
import type { Client, Engine, Peer } from "cinnabar/standard";
import { peerOf } from "../group/member-link.ts";
import { isSameMember, type Member } from "../view/view.ts";
import { isRefusal, Membership, type Published } from "./membership-service.ts";

/** The member that is followed, and the reader of its views. */
export interface Follower {
  readonly engine: Engine;
  readonly group: string;
  /** This member; undefined for an observer. */
  readonly rank: number | undefined;
  /** The member to follow now; undefined for no member. */
  choose(): Member | undefined;
  /** The known version. */
  version(): number;
  onPublished(published: Published): void;
  /** The stream of views from that member has ended by itself. Resolves when it may be tried again. */
  onBroken(member: Member): Promise<void>;
  /**
   * The member does not let this process follow. Resolves when it, or another one, may be tried. Default: as `onBroken`.
   */
  onRefused?(member: Member, signal: AbortSignal): Promise<void>;
}

/** The pause before a member is followed again, in milliseconds; it doubles to the last one. */
const pausesMs = [20, 40, 80, 160, 320, 640, 1000];

/** Follows the views of one member at a time, and of the next one when that fails. */
export class FollowedViews {
  readonly #follower: Follower;
  readonly #peers = new Map<string, Peer>();
  #turn = new AbortController();
  #chosen: Member | undefined;
  #isClosed = false;
  readonly #done: Promise<void>;

  constructor(follower: Follower) {
    this.#follower = follower;
    this.#done = this.#run();
  }

  /** Another member may be the one to follow. */
  onChanged(): void {
    const chosen = this.#follower.choose();
    if (chosen === this.#chosen || (chosen !== undefined && isSameMember(chosen, this.#chosen))) return;
    this.#turn.abort();
    this.#turn = new AbortController();
  }

  /** A client of a member, over a connection that is kept while it is in use. */
  client(member: Member): Client<typeof Membership> {
    const key = `${member.rank} ${member.incarnation}`;
    let peer = this.#peers.get(key);
    if (peer === undefined) {
      peer = peerOf(this.#follower.engine, member);
      this.#peers.set(key, peer);
    }
    return peer.client(Membership);
  }

  /** The view of a member; undefined where it does not answer. */
  async viewOf(member: Member, timeoutMs: number): Promise<Published | undefined> {
    try {
      return await this.client(member).view(this.#follower.group, { timeoutMs });
    } catch {
      return undefined;
    }
  }

  /** Closes the connections to all but these. */
  keep(members: readonly Member[]): void {
    const keys = new Set(members.map(({ rank, incarnation }) => `${rank} ${incarnation}`));
    for (const [key, peer] of this.#peers) {
      if (keys.has(key)) continue;
      peer.close();
      this.#peers.delete(key);
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#turn.abort();
    await this.#done;
    this.keep([]);
  }

  async #run(): Promise<void> {
    let failures = 0;
    // Members that gave nothing since the last view came. Only one that is not among them is asked without a pause.
    const silent: Member[] = [];
    while (!this.#isClosed && this.#follower.engine.state !== "closed") {
      const { signal } = this.#turn;
      const chosen = this.#follower.choose();
      this.#chosen = chosen;
      if (chosen === undefined) {
        await once(signal, "abort");
        continue;
      }
      const outcome = await this.#follow(chosen, signal);
      if (outcome === "some") {
        failures = 0;
        silent.length = 0;
      } else if (!silent.some((member) => isSameMember(member, chosen))) silent.push(chosen);
      if (signal.aborted) continue;
      if (outcome === "refused" && this.#follower.onRefused !== undefined) {
        await this.#follower.onRefused(chosen, signal);
        continue;
      }
      await this.#follower.onBroken(chosen);
      const again = this.#follower.choose();
      if (again === undefined) continue;
      if (!isSameMember(again, chosen) && !silent.some((member) => isSameMember(member, again))) continue;
      const ms = pausesMs[Math.min(failures++, pausesMs.length - 1)];
      await pause(ms, undefined, { signal, ref: false }).catch(() => undefined);
    }
  }

  /** Until the stream ends, or the turn. Whether anything came, or nothing may. */
  async #follow(member: Member, signal: AbortSignal): Promise<"some" | "none" | "refused"> {
    const { group, rank } = this.#follower;
    let hasCome = false;
    try {
      const after = this.#follower.version();
      const stream = this.client(member).follow({ group, after, rank }, { signal });
      for await (const published of stream) {
        hasCome = true;
        this.#follower.onPublished(published);
        if (signal.aborted) break;
      }
    } catch (error) {
      // Whatever else ended it, the member is asked again, or another one.
      if (isRefusal(error)) return "refused";
    }
    return hasCome ? "some" : "none";
  }
}
