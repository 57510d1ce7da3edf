import { RpcError } from "cinnabar/standard";
import { Newest } from "../view/newest.ts";
import { type Member, makeView, memberOf, type View } from "../view/view.ts";
import type { Authority, Membership, Observation } from "./authority.ts";

/** A member in a list. */
export interface ListedMember {
  /** Default: its place in the list. */
  readonly rank?: number;
  readonly urls: readonly string[];
  /** Where its failure detector listens. Default: it has no detector. */
  readonly detector?: string;
  /** The URLs of its worker lanes. Default: it has no lanes. */
  readonly lanes?: readonly string[];
  readonly metadata?: Readonly<Record<string, string>>;
}

/**
 * A list of members that never changes: one view with the version 1. All processes have the same list. Members do not
 * leave, whatever the failure detector says, and a process that restarts takes its place without another incarnation.
 *
 * A candidate names its rank, or is found in the list by one of its URLs.
 *
 * @example
 * const authority = staticAuthority([{ urls: ["tcp://10.0.0.1:7400"] }, { urls: ["tcp://10.0.0.2:7400"] }]);
 *
 * @throws RangeError for an empty list, two members with one rank, or a member without a URL
 */
export function staticAuthority(list: readonly ListedMember[]): Authority {
  if (list.length === 0) throw new RangeError("staticAuthority: the list has no members");
  const members = list.map(listed);
  makeView("", 1, members);
  return {
    isFixed: true,
    async join(group, { rank, urls }) {
      const view = makeView(group, 1, members);
      const self =
        rank === undefined
          ? view.members.find((member) => member.urls.some((url) => urls.includes(url)))
          : memberOf(view, rank);
      if (self !== undefined) return new StaticMembership(view, self);
      throw new RpcError({
        code: "failed_precondition",
        message: `group "${group}": the list of members has ${rank === undefined ? `none of the URLs ${urls.join(", ")}` : `no rank ${rank}`}`,
      });
    },
    async observe(group) {
      return new StaticObservation(makeView(group, 1, members));
    },
  };
}

const listed = ({ rank, urls, detector, lanes, metadata = {} }: ListedMember, place: number): Member => ({
  rank: rank ?? place,
  incarnation: 0,
  engine: undefined,
  urls,
  host: undefined,
  detector,
  lanes: lanes && { engine: undefined, urls: lanes },
  metadata,
});

class StaticObservation implements Observation {
  readonly #view: Newest<View>;

  constructor(view: View) {
    this.#view = new Newest(view);
  }

  get view(): View {
    return this.#view.value;
  }

  views(): AsyncIterable<View> {
    return this.#view.read("next");
  }

  async close(): Promise<void> {
    this.#view.end();
  }
}

class StaticMembership extends StaticObservation implements Membership {
  readonly self: Member;

  constructor(view: View, self: Member) {
    super(view);
    this.self = self;
  }

  report(): void {}

  leave(): Promise<void> {
    return this.close();
  }
}
