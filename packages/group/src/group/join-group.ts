import {
  checkedBy,
  type FieldsOf,
  fail,
  instance,
  integer,
  list,
  type Resolved,
  required,
  resolveOptions,
  text,
} from "cinnabar/options";
import { Engine, type Implementation } from "cinnabar/standard";
import type { Authority, Candidate, Observation } from "../authority/authority.ts";
import { assertFree } from "../collective/collectives.ts";
import { GroupHost } from "../host/group-host.ts";
import { type Member, type MemberLanes, maxRank } from "../view/view.ts";
import { Group, type GroupParts } from "./group.ts";
import {
  GroupDetector,
  type GroupDetectorOptions,
  groupDetectorField,
  liveDetector,
} from "./group-detector.ts";
import { hostIdentity } from "./member-link.ts";

/** The options of `observeGroup`. */
export interface ObserveOptions {
  /** The engine that calls members. */
  readonly engine: Engine;
  /** Decides about membership. */
  readonly authority: Authority;
  /** Gives up while the authority is asked. */
  readonly signal?: AbortSignal | undefined;
}

/** The options of `joinGroup` and `createGroup`. */
export interface JoinOptions extends ObserveOptions {
  /**
   * What this member serves: made by `implementCollectives`, or by `implement` for services without collectives. The
   * engine serves it from now on, also after the group is closed. These services refuse members that were removed from
   * the group; services of the engine itself do not. One implementation can serve several groups. Barriers and
   * exchanges are always served. Default: no other services.
   */
  readonly serve?: readonly Implementation[] | undefined;
  /** The rank that this process wants. Default: the authority chooses one. */
  readonly rank?: number | undefined;
  /** Where the others reach this process. Default: the URLs of the engine. */
  readonly urls?: readonly string[] | undefined;
  /**
   * The worker lanes that serve for this member: the result of `openLanes`, or its incarnation and the `urls` where
   * others reach it. Others call them by `group.at(rank).laneClient(Store)`. Default: no lanes. A list of
   * `staticAuthority` has its own entries for them.
   */
  readonly lanes?: { readonly incarnation: bigint; readonly urls: readonly string[] } | undefined;
  /** What this member publishes about itself. Default: no entries. */
  readonly metadata?: Readonly<Record<string, string>> | undefined;
  /**
   * The failure detector of this member. Default: no detector, and no detector of others notices this member's death.
   */
  readonly detector?: GroupDetectorOptions | undefined;
  /**
   * What happens when this process learns that it was removed from the group. `close`: its engine closes, so that it
   * serves no calls and makes none any more. `ignore`: only the event `excluded`. A function decides by itself. It may
   * be called before `joinGroup` resolves, when no listener of the event exists yet. Default: `close`.
   */
  readonly onExcluded?: "close" | "ignore" | ((group: Group) => void) | undefined;
}

const observeFields = {
  engine: required(
    checkedBy((where, name, value): Engine => {
      if (value instanceof Engine) return value;
      return fail(TypeError, where, name, "an engine, which Engine.open makes", value);
    }),
  ),
  authority: required(
    checkedBy((where, name, value): Authority => {
      const { join, observe } = (value ?? {}) as Partial<Authority>;
      if (typeof join === "function" && typeof observe === "function") return value as Authority;
      return fail(TypeError, where, name, "an authority, such as coordinatorAuthority makes", value);
    }),
  ),
  signal: instance(AbortSignal),
} satisfies FieldsOf<ObserveOptions>;

const joinFields = {
  ...observeFields,
  serve: checkedBy((where, name, value): readonly Implementation[] => {
    if (Array.isArray(value)) return value;
    return fail(TypeError, where, name, "an array of what implementCollectives or implement made", value);
  }, []),
  rank: integer(0, maxRank),
  urls: list(text(1, 4096)),
  lanes: checkedBy(lanesOf),
  metadata: checkedBy((where, name, value): Readonly<Record<string, string>> => {
    if (typeof value !== "object" || value === null) return fail(TypeError, where, name, "an object", value);
    const wrong = Object.entries(value).find(([, one]) => typeof one !== "string");
    if (wrong !== undefined) fail(TypeError, where, `${name}.${wrong[0]}`, "a string", wrong[1]);
    return value as Readonly<Record<string, string>>;
  }, {}),
  detector: groupDetectorField,
  onExcluded: checkedBy((where, name, value): NonNullable<JoinOptions["onExcluded"]> => {
    if (value === "close" || value === "ignore" || typeof value === "function")
      return value as NonNullable<JoinOptions["onExcluded"]>;
    return fail(TypeError, where, name, '"close", "ignore" or a function', value);
  }, "close"),
} satisfies FieldsOf<JoinOptions>;

/**
 * Makes this process a member of a group.
 *
 * @example
 * const engine = await Engine.open({ listen: ["shm://store-1", "tcp://10.0.0.1:7400"] });
 * const group = await joinGroup("store", { engine, authority, serve: [store] });
 * await group.barrier("ready");
 *
 * @throws TypeError for wrong options, a service that the engine serves already, and a group that this engine is a member
 * of. RpcError as `Authority.join` has it.
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
  const where = "observeGroup";
  assertName(where, name);
  const { engine, authority, signal } = resolveOptions(where, options, observeFields);
  const observation = await authority.observe(name, { engine, signal });
  return Group.open({ engine, observation, ...freshnessOf(observation, undefined, undefined) });
}

async function enter(name: string, options: JoinOptions, creates: boolean): Promise<Group> {
  const where = creates ? "createGroup" : "joinGroup";
  assertName(where, name);
  const resolved = resolveOptions(where, options, joinFields);
  const { engine, authority, signal, serve, detector, onExcluded } = resolved;
  const candidate = candidateOf(where, resolved, creates);
  // A list of members names no processes, so lanes may serve for one there.
  if (authority.isFixed !== true) await assertOwn(where, engine, candidate.urls);
  const host = GroupHost.of(engine);
  // Before others can know of this member.
  const served = host.serve(serve, authority.isFixed !== true);
  assertFree(name, served.implementations);
  const membership = await authority.join(name, candidate, { engine, signal });
  return Group.open({
    engine,
    observation: membership,
    membership,
    served,
    ...freshnessOf(membership, membership.self, host),
    startDetector:
      detector && ((onStatus) => GroupDetector.start(membership, liveDetector(name, detector), onStatus)),
    onExcluded: (group) => {
      if (typeof onExcluded === "function") onExcluded(group);
      else if (onExcluded === "close") {
        engine.close();
        group.close();
      }
    },
  });
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

function candidateOf(
  where: string,
  { engine, rank, metadata, urls = engine.urls, lanes, detector }: Resolved<typeof joinFields>,
  creates: boolean,
): Candidate {
  if (urls.length === 0)
    throw new TypeError(`${where}: the engine listens nowhere; a member needs a URL that others can reach`);
  const wildcard = wildcardAmong(urls);
  if (wildcard !== undefined)
    throw new TypeError(
      `${where}: ${wildcard} is for listening; pass urls with an address that others can reach`,
    );
  const ofLanes = lanes?.urls.find((url) => urls.includes(url));
  if (ofLanes !== undefined) throw notOfEngine(where, ofLanes);
  return {
    ...(rank !== undefined && { rank }),
    creates,
    engine: hexadecimal(engine.incarnation),
    urls,
    host: hostIdentity(),
    detector: detector?.address,
    lanes,
    metadata,
  };
}

/** How long an engine at one of `urls` may take to say who it is. */
const ownTimeoutMs = 1000;

/**
 * Members call the engine that joined, and no other one at its URLs. A URL that cannot be reached from here is left
 * alone: others may reach it.
 *
 * @throws TypeError for a URL at which another engine answers, such as that of worker lanes
 */
async function assertOwn(where: string, engine: Engine, urls: readonly string[]): Promise<void> {
  const doubtful = urls.filter((url) => !engine.urls.includes(url));
  await Promise.all(
    doubtful.map(async (url) => {
      const found = await incarnationAt(engine, url);
      if (found !== undefined && found !== engine.incarnation) throw notOfEngine(where, url);
    }),
  );
}

async function incarnationAt(engine: Engine, url: string): Promise<bigint | undefined> {
  try {
    const peer = await engine.connect(url, { timeoutMs: ownTimeoutMs });
    const { incarnation } = peer;
    peer.close();
    return incarnation;
  } catch {
    return undefined;
  }
}

const notOfEngine = (where: string, url: string): TypeError =>
  new TypeError(
    `${where}: urls has ${url}, where another engine answers; pass the URLs of the engine as urls, and those of lanes as lanes`,
  );

function lanesOf(where: string, name: string, value: unknown): MemberLanes {
  const { incarnation, urls } = (value ?? {}) as Partial<NonNullable<JoinOptions["lanes"]>>;
  if (typeof incarnation !== "bigint" || !Array.isArray(urls) || urls.length === 0)
    return fail(TypeError, where, name, "what openLanes gives, or { incarnation, urls }", value);
  const wildcard = wildcardAmong(urls);
  if (wildcard !== undefined)
    throw new TypeError(
      `${where}: ${wildcard} is for listening; pass lanes as { incarnation, urls } with addresses that others can reach`,
    );
  return { engine: hexadecimal(incarnation), urls: [...urls] };
}

const wildcardAmong = (urls: readonly string[]) =>
  urls.find((url) => /\/\/(0\.0\.0\.0|\[::\]|\*)(:|$)/.test(url));

const hexadecimal = (incarnation: bigint) => incarnation.toString(16).padStart(16, "0");

function assertName(where: string, name: string): void {
  if (typeof name !== "string" || !/^\P{Cc}{1,128}$/u.test(name))
    throw new TypeError(`${where}: the name of a group has 1 to 128 characters, and no control characters`);
}
