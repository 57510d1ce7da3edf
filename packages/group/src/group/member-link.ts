import { createHash } from "node:crypto";
import { readFileSync, readlinkSync, statSync } from "node:fs";
import {
  type AnyService,
  type Client,
  type ClientOptions,
  type Engine,
  type Peer,
  RpcError,
} from "cinnabar/standard";
import { type LanesClientOptions, type LanesPeer, lazyLanes } from "cinnabar-lanes";
import { CallerStamp, type Presence, stampedClient } from "../host/freshness.ts";
import type { Member, View } from "../view/view.ts";

/**
 * One member, as this process calls it. It stays the same process: when the member leaves the view, or another process
 * takes its rank, open calls end at once, and those to come fail too. The error has a `NotInViewError` as its cause.
 */
export class MemberLink {
  readonly member: Member;
  /**
   * The connection to the member, by the best of its URLs: shared memory on the same host. It is made with the first
   * call. Its owner is the group.
   */
  readonly peer: Peer;
  readonly #engine: Engine;
  readonly #stamp: CallerStamp | undefined;
  #lanes: LanesPeer | undefined;
  #ended: RpcError | undefined;

  /** @internal `presence`: what calls say of the view that this process has. */
  constructor(engine: Engine, member: Member, presence?: Presence) {
    this.member = member;
    this.#engine = engine;
    this.#stamp = presence && new CallerStamp(presence);
    this.peer = peerOf(engine, member);
  }

  /**
   * Makes a typed client of one of the member's services. It holds nothing and needs no closing.
   *
   * @throws TypeError for bad options, and for anything but a service
   *
   * @example
   * const { value } = await group.at(3).client(Store).read({ key: "a" });
   */
  client<S extends AnyService>(service: S, options: ClientOptions = {}): Client<S> {
    const stamp = this.#stamp;
    const plain = this.peer.client(service, options);
    if (stamp === undefined) return plain;
    const middleware = [stamp.middleware, ...(options.middleware ?? [])];
    return stampedClient(plain, this.peer.client(service, { ...options, middleware }), () => stamp.isDue);
  }

  /**
   * Makes a typed client of a service that the member's worker lanes serve. Its calls go to the lanes, or to one of them
   * with the option `lane`. They end with the member, as those of `client` do. Lanes know no group: they serve callers
   * that were removed from it, too.
   *
   * @throws RpcError `failed_precondition` when the member has no lanes. TypeError for bad options, and for anything but
   * a service
   *
   * @example
   * const { bytes } = await group.at(3).laneClient(Files, { lane: 2 }).stat({ path: "a.txt" });
   */
  laneClient<S extends AnyService>(service: S, options: LanesClientOptions = {}): Client<S> {
    return this.#lanePeer().client(service, options);
  }

  #lanePeer(): LanesPeer {
    if (this.#lanes !== undefined) return this.#lanes;
    const { rank, host, lanes } = this.member;
    if (lanes === undefined)
      throw new RpcError({
        code: "failed_precondition",
        message: `rank ${rank} has no lanes: it joins with the option lanes, or client() is meant`,
      });
    this.#lanes = reach(this.#engine, { ...lanes, host }, lazyLanes);
    if (this.#ended !== undefined) this.#lanes.close(this.#ended);
    return this.#lanes;
  }

  /** @internal Ends all calls with this error, and those to come. */
  end(reason: RpcError): void {
    this.#ended = reason;
    this.peer.close(reason);
    this.#lanes?.close(reason);
  }
}

/**
 * A peer that is this very process of the member, if the authority knows the process. URLs of fabrics that this process
 * does not know are left out.
 *
 * @throws TypeError when it knows none of the fabrics
 */
export function peerOf(engine: Engine, member: Pick<Member, "engine" | "urls" | "host">): Peer {
  return reach(engine, member, (engine, urls, options) => engine.lazyPeer(urls, options));
}

function reach<P>(
  engine: Engine,
  member: Pick<Member, "engine" | "urls" | "host">,
  make: (engine: Engine, urls: readonly string[], options: { readonly incarnation?: bigint }) => P,
): P {
  const urls = urlsFrom(member, hostIdentity());
  const options = member.engine === undefined ? {} : { incarnation: BigInt(`0x${member.engine}`) };
  try {
    return make(engine, urls, options);
  } catch (error) {
    const known = urls.filter((url) => isKnown(engine, url));
    if (!(error instanceof TypeError) || known.length === 0) throw error;
    return make(engine, known, options);
  }
}

function isKnown(engine: Engine, url: string): boolean {
  try {
    engine.lazyPeer(url).close();
    return true;
  } catch {
    return false;
  }
}

/** In the order of the attempts: on one host shared memory first, and no shared memory towards another host. */
export function urlsFrom({ urls, host }: Pick<Member, "urls" | "host">, here: string | undefined): string[] {
  if (host === undefined || here === undefined) return [...urls];
  const [local, others] = [urls.filter(isLocal), urls.filter((url) => !isLocal(url))];
  if (host === here) return [...local, ...others];
  return others.length === 0 ? local : others;
}

const isLocal = (url: string): boolean => url.startsWith("shm:") || url.startsWith("mem:");

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

/**
 * Names what processes must share to use shared memory with each other: the running kernel, the file system with the
 * segments, and the process ids. Undefined where the system does not report it.
 */
export function hostIdentity(): string | undefined {
  identity ??= { name: read() };
  return identity.name;
}

let identity: { readonly name: string | undefined } | undefined;

function read(): string | undefined {
  try {
    const boot = readFileSync("/proc/sys/kernel/random/boot_id", "latin1").trim();
    const parts = [boot, statSync("/dev/shm").dev, readlinkSync("/proc/self/ns/pid")];
    return createHash("sha256").update(parts.join(" ")).digest("hex").slice(0, 16);
  } catch {
    return undefined;
  }
}
