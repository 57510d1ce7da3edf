import type { AnyService, Client, ClientOptions, Engine, Peer, RpcError } from "cinnabar/standard";
import { CallerStamp, type Presence } from "../host/freshness.ts";
import { stampedClient } from "../host/stamped-client.ts";
import type { Member } from "../view/view.ts";
import { hostIdentity } from "./host-identity.ts";

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
  readonly #stamp: CallerStamp | undefined;

  /** @internal `presence`: what calls say of the view that this process has. */
  constructor(engine: Engine, member: Member, presence?: Presence) {
    this.member = member;
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

  /** @internal Ends all calls with this error, and those to come. */
  end(reason: RpcError): void {
    this.peer.close(reason);
  }
}

/** A peer that is this process of the member and no other, where the authority knows which one that is. */
export function peerOf(engine: Engine, member: Member): Peer {
  const urls = urlsFrom(member, hostIdentity());
  return engine.peer(urls, member.engine === undefined ? {} : { incarnation: BigInt(`0x${member.engine}`) });
}

/** In the order in which they are tried: on one host shared memory first, and none towards another host. */
export function urlsFrom({ urls, host }: Pick<Member, "urls" | "host">, here: string | undefined): string[] {
  if (host === undefined || here === undefined) return [...urls];
  const [local, others] = [urls.filter(isLocal), urls.filter((url) => !isLocal(url))];
  if (host === here) return [...local, ...others];
  return others.length === 0 ? local : others;
}

const isLocal = (url: string): boolean => url.startsWith("shm:") || url.startsWith("mem:");
