import { createHash } from "node:crypto";
import { Worker } from "node:worker_threads";
import {
  anything,
  callback,
  checkedBy,
  type FieldsOf,
  integer,
  list,
  number,
  required,
  resolveOptions,
  text,
} from "cinnabar/options";
import type { DetectorEvent } from "../detector/detector.ts";
import type { MemberId, Status } from "../detector/message.ts";
import { Roster } from "../detector/opinions.ts";
import { type DetectorOptions, detectorField } from "../detector/options.ts";
import { maxRank } from "../view/view.ts";
import { parseAddress } from "./datagrams.ts";
import type { Notice, Orders } from "./detector-thread.ts";
import { DetectorThread } from "./detector-thread.ts";
import type { LiveStats } from "./driver.ts";

/** A member of a live group. */
export interface LiveMember {
  /** From 0 to 2^32 - 1. */
  readonly id: MemberId;
  /** Where its detector listens: `IP:PORT` or `[IPv6]:PORT`. All members have addresses of one IP version. */
  readonly address: string;
  /** Where the authority over the group knows one. Default: 0. */
  readonly incarnation?: number;
}

export interface FailureDetectorOptions {
  /** The name of the group. Messages of other groups are refused. */
  readonly group: string;
  /** The id of this member. */
  readonly self: MemberId;
  /** All members, this one included. */
  readonly members: readonly LiveMember[];
  /** Called on the main thread. */
  readonly onEvent?: ((event: DetectorEvent) => void) | undefined;
  /** How the detector works. */
  readonly detector?: DetectorOptions | undefined;
  /** After how many milliseconds without an answer of the main thread this member is `stalled`. Default: 2000. */
  readonly stalledAfterMs?: number | undefined;
  /**
   * A key of at least 16 bytes that all members share. Without it the detector trusts every process that reaches the
   * port.
   */
  readonly key?: Uint8Array | undefined;
}

const leastKeyBytes = 16;

/** Fields that the detector of a group's member has, too. */
export const sharedFields = {
  stalledAfterMs: number(10, 3_600_000, 2000),
  // Its errors do not show the value.
  key: checkedBy((where, name, value): Uint8Array => {
    if (!(value instanceof Uint8Array)) throw new TypeError(`${where}: ${name} must be a Uint8Array`);
    if (value.length < leastKeyBytes)
      throw new RangeError(
        `${where}: ${name} must have at least ${leastKeyBytes} bytes, it has ${value.length}`,
      );
    return value;
  }),
};

const fields = {
  ...sharedFields,
  group: required(text(1, 1024)),
  self: required(integer(0, maxRank)),
  members: required(list(anything<LiveMember>(), 1)),
  onEvent: callback<(event: DetectorEvent) => void>(),
  detector: detectorField,
} satisfies FieldsOf<FailureDetectorOptions>;

/**
 * The failure detector of one member, live: in a thread of its own, over UDP. It reports which members it
 * believes alive, and decides nothing. It does not keep the process alive.
 */
export class FailureDetector {
  readonly #thread: DetectorThread;
  readonly #self: MemberId;
  readonly #onEvent: ((event: DetectorEvent) => void) | undefined;
  readonly #statuses = new Map<MemberId, Status>();
  #members: readonly LiveMember[];

  /**
   * Starts the thread and listens at this member's address.
   * @throws TypeError, RangeError for wrong options; Error when the address cannot be listened at
   */
  static async open(options: FailureDetectorOptions): Promise<FailureDetector> {
    const orders = checked(options);
    const worker = new Worker(new URL("./detector-worker.js", import.meta.url), { workerData: orders });
    try {
      await DetectorThread.ready(worker);
    } catch (error) {
      await worker.terminate();
      throw error;
    }
    return new FailureDetector(worker, options);
  }

  private constructor(worker: Worker, options: FailureDetectorOptions) {
    this.#thread = new DetectorThread(worker, (notice) => this.#onNotice(notice));
    this.#self = options.self;
    this.#members = options.members;
    this.#onEvent = options.onEvent;
  }

  /** The believed status of a member; undefined for one that is not in the group. */
  statusOf(member: MemberId): Status | undefined {
    if (!this.#members.some(({ id }) => id === member)) return undefined;
    return this.#statuses.get(member) ?? "alive";
  }

  /**
   * Takes over another list of members. Beliefs about its members stay, unless it names a later incarnation.
   *
   * @throws TypeError, RangeError when it is wrong, or lacks this member
   */
  adopt(members: readonly LiveMember[]): void {
    const roster = rosterOf(members, this.#self);
    const former = new Map(this.#members.map((member) => [member.id, member.incarnation ?? 0]));
    for (const { id, incarnation = 0 } of members)
      if (incarnation > (former.get(id) ?? incarnation)) this.#statuses.delete(id);
    const ids = new Set(members.map(({ id }) => id));
    for (const id of this.#statuses.keys()) if (!ids.has(id)) this.#statuses.delete(id);
    this.#members = members;
    this.#thread.tell({ kind: "adopt", members: roster.members });
  }

  /** What the detector has counted. Rejects with an Error when it is closed. */
  async stats(): Promise<LiveStats> {
    return (await this.#thread.ask({ kind: "stats" }, "stats")).stats;
  }

  /**
   * Says goodbye to the others, waits until enough of them have got it, and closes. Rejects when it is closed already.
   */
  async leave(): Promise<void> {
    await this.#thread.ask({ kind: "leave" }, "left");
    await this.close();
  }

  /** Ends the thread without a goodbye: the others will find this member dead. */
  async close(): Promise<void> {
    await this.#thread.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #onNotice(notice: Notice): void {
    if (notice.kind === "are-you-there") this.#thread.tell({ kind: "here", number: notice.number });
    if (notice.kind !== "event") return;
    const { event } = notice;
    if (event.type === "status") this.#statuses.set(event.member, event.status);
    this.#onEvent?.(event);
  }
}

function checked(options: FailureDetectorOptions): Orders {
  const resolved = resolveOptions("failure detector", options, fields);
  const { group, self, members, detector, stalledAfterMs, key } = resolved;
  const roster = rosterOf(members, self);
  return { self, members: roster.members, group: numberOf(group), detector, stalledAfterMs, key };
}

/** 32 bits of a group's name, so that groups that share a network do not mix. */
const numberOf = (name: string): number => createHash("sha256").update(name).digest().readUInt32LE();

function rosterOf(members: readonly LiveMember[], self: MemberId): Roster {
  assertOneFamily(members.map(({ address }) => address));
  const wrong = members.find(({ id }) => !(Number.isInteger(id) && id >= 0 && id <= maxRank));
  if (wrong !== undefined)
    throw new RangeError(`failure detector: the id ${wrong.id} is not a whole number from 0 to 2^32 - 1`);
  const roster = new Roster(
    members.map(({ id, address, incarnation = 0 }) => ({ id, addresses: [address], incarnation })),
  );
  roster.require(self);
  return roster;
}

function assertOneFamily(addresses: readonly string[]): void {
  const families = new Set(addresses.map((address) => parseAddress(address).family));
  if (families.size > 1)
    throw new TypeError("failure detector: members have addresses of both IPv4 and IPv6");
}
