import {
  boolean,
  callback,
  checkedBy,
  type FieldsOf,
  fail,
  list,
  number,
  oneOf,
  required,
  resolveNested,
  resolveOptions,
  text,
} from "cinnabar/options";
import { RpcError } from "cinnabar/standard";
import type { Authority, AuthorityContext, Candidate } from "../authority/authority.ts";
import type { Member } from "../view/view.ts";
import { EtcdGateway, persist, withTimeLimit } from "./gateway.ts";
import { GroupKeys, lives } from "./group-keys.ts";
import { EtcdMembership, Lease, type MembershipParts } from "./membership.ts";
import { EtcdObservation } from "./observation.ts";

/** The options of `etcdAuthority`. */
export interface EtcdOptions {
  /** The servers of one cluster: `http://10.0.0.1:2379`. One that does not answer is followed by the next. */
  readonly endpoints: string | readonly string[];
  /** Where the groups are in etcd. Default: "/cinnabar/groups". */
  readonly prefix?: string | undefined;
  /**
   * For how long a member that does not renew its lease stays in the view. Whole seconds, from 2000 to 3,600,000; etcd
   * has a lower bound of its own, by its election timeout. Default: 10,000.
   */
  readonly leaseMs?: number | undefined;
  /**
   * Whether a death that this member's failure detector reports removes a member with a running lease. That member may
   * live, cut off from the others and from etcd. It goes on until its own lease ends: up to `leaseMs` after it was
   * removed. With `false` a dead member stays in the view for up to `leaseMs`. Give all members the same value.
   * Default: true with `whenUnreachable: "wait"`, and false with "end", so that members end before others remove them.
   */
  readonly evictReported?: boolean | undefined;
  /**
   * What a member does that has not reached etcd for as long as its lease lasts, so that others may have removed it.
   * `wait`: goes on with the view that it has. `end`: its group has the event `lost`, and the application must stop
   * serving then. It comes before others can remove the member, unless `evictReported` is true at one of them or the event
   * loop here is blocked. Give all members the same. Default: `wait`.
   */
  readonly whenUnreachable?: "wait" | "end" | undefined;
  /** For a cluster with authentication. */
  readonly user?: { readonly name: string; readonly password: string } | undefined;
  /** How long joining and observing wait for etcd, besides the signal. Default: 30,000. */
  readonly connectTimeoutMs?: number | undefined;
  /** How long one request waits. Default: 5,000. */
  readonly requestTimeoutMs?: number | undefined;
  /** Default: the global one. One of `undici` can present a certificate. */
  readonly fetch?: typeof fetch | undefined;
}

const leastLeaseMs = 2000;
const maxMs = 3_600_000;
const userFields = {
  name: required(text(1, 1024)),
  // Its error does not show the value.
  password: required(
    checkedBy((where, name, value): string => {
      if (typeof value === "string") return value;
      throw new TypeError(`${where}: ${name} must be a string`);
    }),
  ),
};

const fields = {
  endpoints: required(
    checkedBy((where, name, value): readonly string[] =>
      Array.isArray(value) ? endpoints.resolve(where, name, value) : [endpoint.resolve(where, name, value)],
    ),
  ),
  prefix: checkedBy((where, name, value): string => {
    if (typeof value === "string" && value.startsWith("/") && !value.endsWith("/")) return value;
    return fail(TypeError, where, name, "a path that begins with a slash and does not end with one", value);
  }, "/cinnabar/groups"),
  leaseMs: number(leastLeaseMs, maxMs, 10_000),
  evictReported: boolean(),
  whenUnreachable: oneOf(["wait", "end"], "wait"),
  user: checkedBy((where, name, value) => {
    if (typeof value !== "object")
      throw new TypeError(`${where}: ${name} must be an object with name and password`);
    return resolveNested(where, name, value, userFields);
  }),
  connectTimeoutMs: number(1, maxMs, 30_000),
  requestTimeoutMs: number(1, maxMs, 5_000),
  fetch: callback<typeof globalThis.fetch>(),
} satisfies FieldsOf<EtcdOptions>;

const endpoint = checkedBy((where, name, value): string => {
  if (typeof value === "string" && /^https?:\/\//.test(value) && URL.canParse(value)) return value;
  return fail(TypeError, where, name, "a URL with http or https", value);
});
const endpoints = list(endpoint, 1);

/**
 * etcd decides who belongs to a group, over its HTTP gateway (3.4 or later). A member holds a lease and renews it.
 * Living members remove those with an ended lease, and those that failure detectors report. Each view is a transaction
 * that fails if another view was written since. So a part of the group that cannot reach etcd never publishes. All
 * views of a group are one value of etcd, whose limit is 1.5 MB: some 5,000 members.
 *
 * A process that joins makes the group if there is no group yet.
 *
 * @example
 * const authority = etcdAuthority({ endpoints: ["http://10.0.0.1:2379", "http://10.0.0.2:2379"] });
 * const group = await joinGroup("store", { engine, authority });
 *
 * @throws TypeError, RangeError for wrong options
 */
export function etcdAuthority(options: EtcdOptions): Authority {
  const resolved = resolveOptions("etcdAuthority", options, fields);
  const { endpoints, prefix, leaseMs, user, connectTimeoutMs, requestTimeoutMs, whenUnreachable } = resolved;
  // With "end", members end before others may remove them.
  const { evictReported = whenUnreachable === "wait", fetch = globalThis.fetch } = resolved;
  const gateway = new EtcdGateway({ endpoints, user, requestTimeoutMs, fetch });
  const within = <T>(context: AuthorityContext, work: (signal: AbortSignal) => Promise<T>) =>
    withTimeLimit(connectTimeoutMs, [context.signal], work);
  return {
    join: (group, candidate, context) =>
      within(context, async (signal) => {
        const keys = new GroupKeys(gateway, prefix, group);
        const lease = await persist(() => Lease.grant(gateway, leaseMs, signal), signal);
        try {
          const joined = await persist(() => enter(keys, group, candidate, lease, signal), signal);
          const rules = { evictsReported: evictReported, endsUnreachable: whenUnreachable === "end" };
          const membership = new EtcdMembership({ gateway, keys, lease, ...joined, ...rules });
          membership.start();
          return membership;
        } catch (error) {
          // It ends by itself where etcd cannot be reached.
          await withTimeLimit(1000, [], (soon) => lease.revoke(soon)).catch(() => {});
          throw error;
        }
      }),
    observe: (group, context) =>
      within(context, async (signal) => {
        const keys = new GroupKeys(gateway, prefix, group);
        const { state } = await persist(() => keys.read(signal), signal);
        if (state.view === undefined)
          throw new RpcError({ code: "not_found", message: `group "${group}": etcd has no such group` });
        const observation = new EtcdObservation(keys, state, state.view);
        observation.start();
        return observation;
      }),
  };
}

/** Publishes the view that has the candidate, and takes its rank. A try that was carried out unnoticed counts. */
async function enter(
  keys: GroupKeys,
  group: string,
  candidate: Candidate,
  lease: Lease,
  signal: AbortSignal,
): Promise<Pick<MembershipParts, "self" | "state">> {
  for (;;) {
    const { state } = await keys.read(signal);
    const { view } = state;
    const self = view?.members.find(({ rank }) => state.holders.get(rank)?.lease === lease.id);
    if (view !== undefined && self !== undefined) return { self, state: { ...state, view } };
    const living = (view?.members ?? []).filter((member) => lives(state, member));
    if (candidate.creates && living.length > 0)
      throw new RpcError({
        code: "already_exists",
        message: `group "${group}": it exists and has ${living.length} members`,
      });
    const rank = candidate.rank ?? state.nextRank;
    const holder = living.find((member) => member.rank === rank);
    // No other process can listen at the same address, so the former process of that rank has ended.
    if (holder !== undefined && !holder.urls.some((url) => candidate.urls.includes(url)))
      throw new RpcError({
        code: "failed_precondition",
        message: `group "${group}": rank ${rank} belongs to ${holder.urls[0]}, whose lease runs`,
      });
    // The version of the view is higher than every incarnation that the rank has had.
    const member = memberFrom(candidate, rank, (view?.version ?? 0) + 1);
    await keys.publish(
      state,
      {
        members: [...living.filter((other) => other.rank !== rank), member],
        nextRank: Math.max(state.nextRank, rank + 1),
        holder: { rank, incarnation: member.incarnation, lease: lease.id },
      },
      signal,
    );
  }
}

const memberFrom = (
  { engine, urls, host, detector, lanes, metadata }: Candidate,
  rank: number,
  incarnation: number,
): Member => ({
  ...{ rank, incarnation, engine, urls, host, detector, lanes, metadata },
});
