import type { RegionHandle } from "../bulk/region-handle.ts";
import { systemClock } from "../call/clock.ts";
import { RpcError } from "../errors/rpc-error.ts";
import { isWildcard } from "../fabric/host.ts";
import { hasHosts, parseUrl } from "../fabric/url.ts";
import type { OwnerLink } from "../memory/borrowing.ts";
import type { Session } from "../session/session.ts";
import type { Peer } from "./peer.ts";

/** The nearest way first: what is in this process, then on this host. */
const preferred = ["mem", "shm", "verbs", "tcp"];

/** Less than this is no time: timers are of whole milliseconds, and a try that begins so late has failed before it was heard of. */
const leastTryMs = 1;

/** A connection that was made to borrow, as long as something is borrowed by it. */
interface Owner {
  readonly peer: Peer;
  uses: number;
}

/** The ways to the owners of borrowed regions. */
export class Owners {
  readonly #sessions: Iterable<Session>;
  readonly #connect: (url: string, timeoutMs: number) => Promise<Peer>;
  readonly #owners = new Map<bigint, Owner>();

  constructor(sessions: Iterable<Session>, connect: (url: string, timeoutMs: number) => Promise<Peer>) {
    this.#sessions = sessions;
    this.#connect = connect;
  }

  /** The way to the engine that gave the handle out: a session that is there, or one made for this. */
  async reach(handle: RegionHandle, timeoutMs: number, signal: AbortSignal | undefined): Promise<OwnerLink> {
    const { incarnation } = handle;
    const there = this.#use(incarnation) ?? this.#open(incarnation);
    if (there !== undefined) return there;
    const work = this.#connectTo(handle, systemClock.now() + timeoutMs);
    const peer = signal === undefined ? await work : await unlessAborted(work, signal);
    // Somebody else may have made one meanwhile.
    const other = this.#use(incarnation);
    if (other !== undefined) {
      peer.close();
      return other;
    }
    this.#owners.set(incarnation, { peer, uses: 0 });
    const made = this.#use(incarnation);
    if (made === undefined) throw unreachable("unavailable", `${peer.url} was lost again at once`);
    return made;
  }

  /** A session that was opened for something else, by either side. */
  #open(incarnation: bigint): OwnerLink | undefined {
    for (const session of this.#sessions) {
      if (session.state === "open" && session.remote?.incarnation === incarnation)
        return { session, release: () => {} };
    }
    return undefined;
  }

  #use(incarnation: bigint): OwnerLink | undefined {
    const owner = this.#owners.get(incarnation);
    if (owner === undefined) return undefined;
    const session = owner.peer.incarnation === incarnation ? owner.peer.current : undefined;
    if (session === undefined) {
      // Lost: what was borrowed by it has ended.
      this.#owners.delete(incarnation);
      owner.peer.close();
      return undefined;
    }
    owner.uses++;
    return {
      session,
      release: () => {
        if (--owner.uses > 0) return;
        // The answer that gives the region back leaves first, and whoever borrows again at once finds the session.
        setImmediate(() => {
          if (owner.uses > 0) return;
          if (this.#owners.get(incarnation) === owner) this.#owners.delete(incarnation);
          owner.peer.close();
        });
      },
    };
  }

  async #connectTo({ urls, incarnation }: RegionHandle, untilMs: number): Promise<Peer> {
    const tried: string[] = [];
    let isGone = false;
    for (const url of [...urls].sort((a, b) => rank(a) - rank(b))) {
      const fault = unusable(url);
      if (fault !== undefined) {
        tried.push(`${url}: ${fault}`);
        continue;
      }
      const leftMs = untilMs - systemClock.now();
      if (leftMs < leastTryMs) {
        tried.push(`${url}: there was no time left to try it`);
        continue;
      }
      try {
        const peer = await this.#connect(url, leftMs);
        if (peer.incarnation === incarnation) return peer;
        peer.close();
        isGone = true;
        tried.push(`${url}: another engine answers there`);
      } catch (error) {
        tried.push((error as Error).message.replace(/^\[\w+\] /, ""));
      }
    }
    throw unreachable(
      isGone ? "not_found" : "unavailable",
      tried.join("; ") || "its handle names no address",
    );
  }
}

function unreachable(code: "not_found" | "unavailable", why: string): RpcError {
  const message = `borrow: the region's owner cannot be reached: ${why}`;
  return new RpcError({ code, message, origin: "local" });
}

function rank(url: string): number {
  const index = preferred.indexOf(url.slice(0, url.indexOf("://")));
  return index < 0 ? preferred.length : index;
}

/** Why a URL out of a handle cannot be connected to. */
function unusable(url: string): string | undefined {
  try {
    const { scheme, host } = parseUrl(url);
    if (!hasHosts(scheme) || !isWildcard(host)) return undefined;
    return "the owner listens on every interface, which is no address: let it listen at the one that others reach it by";
  } catch {
    return "it cannot be connected to from here";
  }
}

async function unlessAborted(work: Promise<Peer>, signal: AbortSignal): Promise<Peer> {
  let stop = () => {};
  const aborted = new Promise<never>((_, reject) => {
    stop = () =>
      reject(
        new RpcError({
          code: "cancelled",
          message: "borrow: it was given up",
          origin: "local",
          cause: signal.reason,
        }),
      );
    if (signal.aborted) stop();
    else signal.addEventListener("abort", stop);
  });
  try {
    return await Promise.race([work, aborted]);
  } catch (error) {
    if (signal.aborted)
      work.then(
        (peer) => peer.close(),
        () => {},
      );
    throw error;
  } finally {
    signal.removeEventListener("abort", stop);
  }
}
