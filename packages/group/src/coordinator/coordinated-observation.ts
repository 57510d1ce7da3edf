import type { Engine } from "cinnabar/standard";
import type { Observation } from "../authority/authority.ts";
import { Newest } from "../view/newest.ts";
import { isSameMember, type Member, memberOf, type View } from "../view/view.ts";
import { FollowedViews } from "./followed-views.ts";
import type { Published } from "./membership-service.ts";

/** Follows a group with a coordinator from outside: by any of its members, and by another one when that is lost. */
export class CoordinatedObservation implements Observation {
  readonly #views: Newest<View>;
  readonly #follower: FollowedViews;
  readonly #timeoutMs: number;
  /** The member that is followed while it is in the view. */
  #chosen: Member | undefined;
  /** Counts the members that were followed, so that the next one is another. */
  #turn = Math.floor(Math.random() * 1024);
  #refreshing: Promise<void> | undefined;

  constructor(options: {
    readonly engine: Engine;
    readonly published: Published;
    readonly probeTimeoutMs: number;
  }) {
    const { view } = options.published;
    this.#timeoutMs = options.probeTimeoutMs;
    this.#views = new Newest(view);
    this.#follower = new FollowedViews({
      engine: options.engine,
      group: view.group,
      rank: undefined,
      choose: () => this.#choose(),
      version: () => this.view.version,
      onPublished: ({ view: next }) => this.#adopt(next),
      onBroken: async () => {
        this.#turn += 1;
        this.#chosen = undefined;
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

  #choose(): Member | undefined {
    const { members } = this.view;
    const chosen = this.#chosen;
    if (chosen === undefined || !isSameMember(chosen, memberOf(this.view, chosen.rank)))
      this.#chosen = members[this.#turn % members.length];
    return this.#chosen;
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
