import type { Engine } from "cinnabar/standard";
import type { Authority, Observation } from "../authority/authority.ts";
import type { Candidate } from "../authority/candidate.ts";
import type { GroupHost } from "../host/group-host.ts";
import type { Member } from "../view/view.ts";
import { Group, type GroupParts } from "./group.ts";
import { GroupDetector, type GroupDetectorOptions, liveDetector } from "./group-detector.ts";
import { hostIdentity } from "./host-identity.ts";

/** The options of `observeGroup`. */
export interface ObserveOptions {
  /** The engine that calls members. */
  readonly engine: Engine;
  /** Who decides about membership. */
  readonly authority: Authority;
  /** What this process serves for its groups. Authorities whose members ask each other need it, and freshness does. */
  readonly host?: GroupHost;
  /** Gives up while the authority is asked. */
  readonly signal?: AbortSignal;
}

/** The options of `joinGroup` and `createGroup`. */
export interface JoinOptions extends ObserveOptions {
  /** The rank that this process wants. Default: the authority chooses one. */
  readonly rank?: number;
  /** Where the others reach this process. Default: the URLs of the engine. */
  readonly urls?: readonly string[];
  /** What this member says of itself. Default: nothing. */
  readonly metadata?: Readonly<Record<string, string>>;
  /** The failure detector of this member. Default: none, and nobody finds out by a detector that this member died. */
  readonly detector?: GroupDetectorOptions;
  /**
   * What happens when this process learns that it was removed from the group. `close`: its engine closes, so that it
   * serves nobody and calls nobody any more. `ignore`: nothing but the event `excluded`. A function decides by itself.
   * Default: `close`.
   */
  readonly onExcluded?: "close" | "ignore" | ((group: Group) => void);
}

/**
 * Makes this process a member of a group.
 *
 * @example
 * const engine = await Engine.open({ listen: ["shm://store-1", "tcp://10.0.0.1:7400"], serve: [store] });
 * const group = await joinGroup("store", { engine, authority });
 *
 * @throws TypeError for wrong options. RpcError as `Authority.join` has it.
 */
export function joinGroup(name: string, options: JoinOptions): Promise<Group> {
  return enter(name, options, false);
}

/**
 * Makes a group with this process as its first member, where the authority lets members make groups.
 *
 * @throws as `joinGroup`; RpcError `already_exists` when there is such a group
 */
export function createGroup(name: string, options: JoinOptions): Promise<Group> {
  return enter(name, options, true);
}

/**
 * Follows a group without being a member.
 *
 * @throws TypeError for wrong options. RpcError as `Authority.observe` has it.
 */
export async function observeGroup(name: string, options: ObserveOptions): Promise<Group> {
  const { engine, authority, host, signal } = checked("observeGroup", name, options, []);
  const observation = await authority.observe(name, { engine, host, signal });
  return Group.open({ engine, observation, ...freshnessOf(observation, undefined, undefined) });
}

async function enter(name: string, options: JoinOptions, creates: boolean): Promise<Group> {
  const where = creates ? "createGroup" : "joinGroup";
  const known = ["rank", "urls", "metadata", "detector", "onExcluded"];
  const {
    engine,
    authority,
    host,
    signal,
    detector,
    onExcluded = "close",
  } = checked(where, name, options, known);
  if (onExcluded !== "close" && onExcluded !== "ignore" && typeof onExcluded !== "function")
    throw new TypeError(`${where}: onExcluded must be "close", "ignore" or a function`);
  const membership = await authority.join(name, candidateOf(where, options, creates), {
    engine,
    host,
    signal,
  });
  const group = await Group.open({
    engine,
    observation: membership,
    membership,
    ...freshnessOf(membership, membership.self, host),
    startDetector:
      detector && ((onStatus) => GroupDetector.start(membership, liveDetector(name, detector), onStatus)),
    onExcluded: () => {
      if (typeof onExcluded === "function") onExcluded(group);
      else if (onExcluded === "close") {
        engine.close();
        group.close();
      }
    },
  });
  return group;
}

/** Calls say which view their caller has, where views change. */
function freshnessOf(
  observation: Observation,
  self: Member | undefined,
  host: GroupHost | undefined,
): Pick<GroupParts, "presence" | "onClose"> {
  if (observation.refresh === undefined) return {};
  const presence = {
    self,
    get view() {
      return observation.view;
    },
    refresh: (version: number) => observation.refresh?.(version),
  };
  const onClose = host?.present(observation.view.group, presence);
  return { presence, ...(onClose && { onClose }) };
}

function candidateOf(where: string, options: JoinOptions, creates: boolean): Candidate {
  const { engine, rank, metadata = {}, urls = engine.urls } = options;
  if (urls.length === 0)
    throw new TypeError(`${where}: the engine listens nowhere; a member needs a URL that others can reach`);
  const wildcard = urls.find((url) => /\/\/(0\.0\.0\.0|\[::\]|\*)(:|$)/.test(url));
  if (wildcard !== undefined)
    throw new TypeError(
      `${where}: ${wildcard} is for listening; pass urls with an address that others can reach`,
    );
  if (rank !== undefined && !(Number.isInteger(rank) && rank >= 0 && rank <= 0xffff_ffff))
    throw new RangeError(`${where}: rank must be a whole number from 0 to 2^32 - 1, it is ${rank}`);
  const wrong = Object.entries(metadata).find(([, value]) => typeof value !== "string");
  if (wrong !== undefined) throw new TypeError(`${where}: metadata.${wrong[0]} must be a string`);
  return {
    ...(rank !== undefined && { rank }),
    creates,
    engine: engine.incarnation.toString(16).padStart(16, "0"),
    urls,
    host: hostIdentity(),
    detector: options.detector?.address,
    metadata,
  };
}

function checked<O extends ObserveOptions>(
  where: string,
  name: string,
  options: O,
  more: readonly string[],
): O {
  const known = ["engine", "authority", "host", "signal", ...more];
  const unknown = Object.keys(options).find((option) => !known.includes(option));
  if (unknown !== undefined)
    throw new TypeError(`${where}: unknown option "${unknown}"; known are ${known.join(", ")}`);
  if (typeof name !== "string" || !/^\P{Cc}{1,128}$/u.test(name))
    throw new TypeError(`${where}: the name of a group has 1 to 128 characters, and no control characters`);
  return options;
}
