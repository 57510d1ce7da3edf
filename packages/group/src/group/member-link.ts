import { type Engine, type Peer, RpcError } from "cinnabar/standard";
import type { Member } from "../view/view.ts";
import { hostIdentity } from "./host-identity.ts";

/** A member as this process reaches it. It ends when the member leaves the view. */
export class MemberLink {
  readonly member: Member;
  readonly #engine: Engine;
  #peer: Promise<Peer> | undefined;
  #end: RpcError | undefined;

  constructor(engine: Engine, member: Member) {
    this.#engine = engine;
    this.member = member;
  }

  /**
   * The connection to the member, by the best of its URLs. It is made once and shared.
   *
   * @throws RpcError `unavailable` when the member cannot be reached, `failed_precondition` when it is not in the view
   * any more
   */
  connect(): Promise<Peer> {
    if (this.#end !== undefined) return Promise.reject(this.#end);
    this.#peer ??= this.#dial().catch((error) => {
      this.#peer = undefined;
      throw error;
    });
    return this.#peer;
  }

  /** Ends all calls with this error, and those to come. */
  end(reason: RpcError): void {
    this.#end ??= reason;
    this.#peer?.then(
      (peer) => peer.close(),
      () => {},
    );
  }

  async #dial(): Promise<Peer> {
    let error: unknown = new RpcError({ code: "unavailable", message: "no URL" });
    for (const url of urlsFrom(this.member, hostIdentity())) {
      try {
        const peer = await this.#engine.connect(url);
        if (this.#end === undefined) return peer;
        peer.close();
        throw this.#end;
      } catch (failure) {
        error = failure;
      }
    }
    throw error;
  }
}

/** In the order in which they are tried: on one host shared memory first, and none towards another host. */
export function urlsFrom({ urls, host }: Member, here: string | undefined): string[] {
  if (host === undefined || here === undefined) return [...urls];
  const [local, others] = [urls.filter(isLocal), urls.filter((url) => !isLocal(url))];
  return host === here ? [...local, ...others] : others;
}

const isLocal = (url: string): boolean => url.startsWith("shm:") || url.startsWith("mem:");
