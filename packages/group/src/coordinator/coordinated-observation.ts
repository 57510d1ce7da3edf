import { setTimeout as pause } from "node:timers/promises";
import type { Engine, RpcError } from "cinnabar/standard";
import type { Observation } from "../authority/authority.ts";
import { Newest } from "../view/newest.ts";
import { isSameMember, type Member, memberOf, type View } from "../view/view.ts";
import { FollowedViews } from "./followed-views.ts";
import type { Published } from "./membership-service.ts";
import { isRefusal, refusedBy } from "./membership-service.ts";

/**
 * Follows a group with a coordinator from outside: by any of its members, and by another one when that is lost. Where no
 * member lets it follow, it asks for the view from time to time. It is lost when they do not allow that either.
 */
export class CoordinatedObservation implements Observation {
  readonly #views: Newest<View>;
  readonly #follower: FollowedViews;
  readonly #timeoutMs: number;
  readonly #refreshMs: number;
  /** The member that is followed while it is in the view. */
  #chosen: Member | undefined;
  /** Counts the members that were followed, so that the next one is another. */
  #turn = Math.floor(Math.random() * 1024);
  #refreshing: Promise<void> | undefined;
  /** Members that have refused to be followed, one after the other. */
  #refusals = 0;

  constructor(options: {
    readonly engine: Engine;
    readonly published: Published;
    readonly probeTimeoutMs: number;
    readonly refreshMs: number;
  }) {
    const { view } = options.published;
    this.#timeoutMs = options.probeTimeoutMs;
    this.#refreshMs = options.refreshMs;
    this.#views = new Newest(view);
    this.#follower = new FollowedViews({
      engine: options.engine,
      group: view.group,
      rank: undefined,
      choose: () => this.#choose(),
      version: () => this.view.version,
      onPublished: ({ view: next }) => {
        this.#refusals = 0;
        this.#adopt(next);
      },
      onBroken: async () => this.#chooseAnother(),
      onRefused: async (_, signal) => {
        this.#chooseAnother();
        this.#refusals += 1;
        // Another member may permit it.
        if (this.#refusals >= this.view.members.length) await this.#poll(signal);
      },
    });
  }

  get view(): View {
    return this.#views.value;
  }

  views(): AsyncIterable<View> {
    return this.#views.read("next");
  }

  refresh(version: number): void {
    if (version <= this.view.version || this.#views.ended) return;
    this.#refreshing ??= this.#refresh(version).finally(() => {
      this.#refreshing = undefined;
    });
  }

  async close(): Promise<void> {
    this.#views.end();
    await this.#follower.close();
  }

  #chooseAnother(): void {
    this.#turn += 1;
    this.#chosen = undefined;
  }

  #choose(): Member | undefined {
    const { members } = this.view;
    if (this.#views.ended) return undefined;
    const chosen = this.#chosen;
    if (chosen === undefined || !isSameMember(chosen, memberOf(this.view, chosen.rank)))
      this.#chosen = members[this.#turn % members.length];
    return this.#chosen;
  }

  /** Waits, and asks one member after the other for its view, until one answers. */
  async #poll(signal: AbortSignal): Promise<void> {
    await pause(this.#refreshMs, undefined, { signal, ref: false }).catch(() => undefined);
    const { group, members } = this.view;
    const refusals: RpcError[] = [];
    for (let i = 0; i < members.length && !signal.aborted; i++) {
      const member = members[(this.#turn + i) % members.length] as Member;
      try {
        const options = { timeoutMs: this.#timeoutMs, signal };
        const { view } = await this.#follower.client(member).view(group, options);
        return this.#adopt(view);
      } catch (error) {
        if (isRefusal(error)) refusals.push(error);
      }
    }
    const [refusal] = refusals;
    if (refusal === undefined || refusals.length < members.length) return;
    this.#views.end(refusedBy(group, "each member", refusal));
  }

  #adopt(view: View): void {
    if (view.version <= this.view.version || view.group !== this.view.group || this.#views.ended) return;
    this.#views.set(view);
    this.#follower.keep(view.members);
    this.#follower.onChanged();
  }

  async #refresh(version: number): Promise<void> {
    for (const member of this.view.members) {
      if (this.view.version >= version || this.#views.ended) return;
      const published = await this.#follower.viewOf(member, this.#timeoutMs);
      if (published !== undefined) this.#adopt(published.view);
    }
  }
}
