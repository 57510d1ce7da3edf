import type { Engine, RpcError } from "cinnabar/standard";
import type { Presence } from "../host/freshness.ts";
import type { Member, View } from "../view/view.ts";
import { MemberLink } from "./member-link.ts";

/** What is known of a member that a message of the group names. */
export type NamedMember = Pick<Member, "rank" | "incarnation" | "engine" | "urls" | "host">;

/** The most connections to members that the view does not have. */
const mostLinks = 256;

/**
 * Members that messages of others name and that the view of this process does not have: it is behind, or they are. Their
 * connections end when a later view has another process at their rank, or the group closes.
 */
export class Strangers {
  readonly #engine: Engine;
  readonly #presence: Presence | undefined;
  /** In the order in which they were first reached. */
  readonly #links = new Map<string, MemberLink>();

  constructor(engine: Engine, presence?: Presence) {
    this.#engine = engine;
    this.#presence = presence;
  }

  /** @throws TypeError when no URL of the member is one that Cinnabar knows */
  reach({ rank, incarnation, engine, urls, host }: NamedMember, tooMany: RpcError): MemberLink {
    const name = `${rank}/${incarnation}`;
    const known = this.#links.get(name);
    if (known !== undefined) return known;
    const member = { rank, incarnation, engine, urls, host, detector: undefined, metadata: {} };
    const link = new MemberLink(this.#engine, member, this.#presence);
    this.#links.set(name, link);
    const [oldest] = this.#links;
    if (this.#links.size > mostLinks && oldest !== undefined) this.#end(oldest, tooMany);
    return link;
  }

  /** A new view has come. A process whose rank the view gives to a later process will not come back. */
  adopt({ members }: View, reason: (rank: number) => RpcError): void {
    if (this.#links.size === 0) return;
    const incarnations = new Map(members.map(({ rank, incarnation }) => [rank, incarnation]));
    for (const entry of this.#links) {
      const { rank, incarnation } = entry[1].member;
      if ((incarnations.get(rank) ?? -1) > incarnation) this.#end(entry, reason(rank));
    }
  }

  end(reason: RpcError): void {
    for (const entry of this.#links) this.#end(entry, reason);
  }

  #end([name, link]: [string, MemberLink], reason: RpcError): void {
    this.#links.delete(name);
    link.end(reason);
  }
}
