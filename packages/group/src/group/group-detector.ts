import { checkedBy, type FieldsOf, fail, required, resolveNested } from "cinnabar/options";
import type { Membership } from "../authority/authority.ts";
import type { DetectorEvent } from "../detector/detector.ts";
import type { Status } from "../detector/message.ts";
import { type DetectorOptions, detectorField } from "../detector/options.ts";
import { canReach, parseAddress } from "../live/datagrams.ts";
import type { LiveStats } from "../live/driver.ts";
import { FailureDetector, type LiveMember, sharedFields } from "../live/failure-detector.ts";
import { type Member, memberOf, type View } from "../view/view.ts";

/** The failure detector of a member: the option `detector` of `joinGroup`. */
export interface GroupDetectorOptions {
  /**
   * Where it listens, and others reach it, over UDP: `IP:PORT` or `[IPv6]:PORT`. Members with IPv4 and members with IPv6
   * do not notice each other.
   */
  readonly address: string;
  /** How it works. */
  readonly options?: DetectorOptions | undefined;
  /** After how many milliseconds without an answer of the main thread this member is `stalled`. Default: 2000. */
  readonly stalledAfterMs?: number | undefined;
  /**
   * A key of at least 16 bytes that all members share. Without it the detector trusts every process that reaches the
   * port.
   */
  readonly key?: Uint8Array | undefined;
}

const fields = {
  ...sharedFields,
  address: required(
    checkedBy((where, name, value): string => {
      if (typeof value !== "string") return fail(TypeError, where, name, "IP:PORT, a string", value);
      parseAddress(value);
      return value;
    }),
  ),
  options: detectorField,
} satisfies FieldsOf<GroupDetectorOptions>;

/** Checked before the process joins, and resolved where the detector opens. */
export const groupDetectorField = checkedBy((where, name, value): GroupDetectorOptions => {
  resolveNested(where, name, value, fields);
  return value as GroupDetectorOptions;
});

/** What a group asks a detector for. */
export interface Detector {
  statusOf(rank: number): Status | undefined;
  adopt(members: readonly LiveMember[]): void;
  stats(): Promise<LiveStats>;
  close(): Promise<void>;
}

export type OpenDetector = (
  self: number,
  members: readonly LiveMember[],
  onEvent: (event: DetectorEvent) => void,
) => Promise<Detector>;

export const liveDetector =
  (group: string, { options = {}, address: _, ...rest }: GroupDetectorOptions): OpenDetector =>
  (self, members, onEvent) =>
    FailureDetector.open({ ...rest, group, self, members, onEvent, detector: options });

/**
 * A member raises its incarnation by one whenever it refutes a suspicion. Each incarnation of the authority has a range
 * of the detector's incarnations. So an opinion about the former process in a place does not concern its successor.
 */
const refutations = 2 ** 20;

/** A status of a member, and what it was. */
export interface StatusChange {
  readonly member: Member;
  readonly status: Status;
  readonly previous: Status;
}

/** Keeps the detector's roster equal to the view, and reports the detector's beliefs to the authority. */
export class GroupDetector {
  readonly #membership: Membership;
  readonly #onStatus: (change: StatusChange) => void;
  #detector: Detector | undefined;
  #view: View;

  static async start(
    membership: Membership,
    open: OpenDetector,
    onStatus: (change: StatusChange) => void,
  ): Promise<GroupDetector> {
    const self = new GroupDetector(membership, onStatus);
    const { rank } = membership.self;
    self.#detector = await open(rank, self.#rosterOf(self.#view), (event) => self.#onEvent(event));
    return self;
  }

  private constructor(membership: Membership, onStatus: (change: StatusChange) => void) {
    this.#membership = membership;
    this.#onStatus = onStatus;
    this.#view = membership.view;
  }

  statusOf(rank: number): Status | undefined {
    return this.#detector?.statusOf(rank);
  }

  /** The detector ignores a view without this member and keeps the former one until it is closed. */
  adopt(view: View): void {
    this.#view = view;
    if (memberOf(view, this.#membership.self.rank)?.detector === undefined) return;
    this.#detector?.adopt(this.#rosterOf(view));
  }

  async stats(): Promise<LiveStats | undefined> {
    return this.#detector?.stats();
  }

  async close(): Promise<void> {
    await this.#detector?.close();
  }

  /**
   * This member, and those with a detector that it can reach: addresses that other members choose must not harm this
   * one.
   */
  #rosterOf({ members }: View): LiveMember[] {
    const { self } = this.#membership;
    return members.flatMap(({ rank, detector, incarnation }) =>
      detector === undefined || (rank !== self.rank && !canReach(self.detector ?? "", detector))
        ? []
        : [{ id: rank, address: detector, incarnation: incarnation * refutations }],
    );
  }

  #onEvent(event: DetectorEvent): void {
    // Others may know of a view that has passed this member by.
    if (event.type !== "status") {
      if (event.type !== "slept") this.#membership.refresh?.(this.#view.version + 1);
      return;
    }
    const member = memberOf(this.#view, event.member);
    if (member === undefined || Math.floor(event.incarnation / refutations) !== member.incarnation) return;
    const { status, previous } = event;
    this.#membership.report(member, status === "dead" || status === "left" ? status : "alive");
    this.#onStatus({ member, status, previous });
  }
}
