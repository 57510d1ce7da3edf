import { RpcError } from "../base/errors/rpc-error.ts";
import { realClock } from "../base/time/clock.ts";
import { realTimers } from "../base/time/real-timers.ts";
import { isWildcard } from "../fabric/host.ts";
import { hasHosts, parseUrl } from "../fabric/libfabric/url.ts";
import { fastestFirst } from "../fabric/preference.ts";
import type { RegionHandle } from "../memory/region-handle.ts";
import type { Exchange } from "../session/calls/exchange.ts";
import type { OwnerLink } from "../transfer/handles/borrowing.ts";
import type { PeerConnection } from "./peer-connection.ts";

/**
 * The shortest time for a try: timers count whole milliseconds, and a later try would fail before the peer could
 * answer.
 */
const leastTryMs = 1;

/** The used part of a connection that was made for a borrow. */
type OwnerConnection = Pick<PeerConnection, "url" | "incarnation" | "current" | "close">;

type Connect = (url: string, timeoutMs: number) => Promise<OwnerConnection>;

/** A connection that was made for a borrow. It stays while a region is borrowed over it. */
interface Owner {
  readonly connection: OwnerConnection;
  uses: number;
}

/** The connections to the owners of borrowed regions. */
export class BorrowConnections {
  readonly #sessions: Iterable<Exchange>;
  readonly #connect: Connect;
  readonly #owners = new Map<bigint, Owner>();

  constructor(sessions: Iterable<Exchange>, connect: Connect) {
    this.#sessions = sessions;
    this.#connect = connect;
  }

  /** The link to the engine that issued the handle: an open session, or a new connection. */
  async reach(handle: RegionHandle, timeoutMs: number, signal: AbortSignal | undefined): Promise<OwnerLink> {
    const { incarnation } = handle;
    const there = this.#use(incarnation) ?? this.#open(incarnation);
    if (there !== undefined) return there;
    const work = this.#connectTo(handle, realClock.now() + timeoutMs);
    const connection = signal === undefined ? await work : await unlessAborted(work, signal);
    // Another borrow may have made a connection meanwhile.
    const other = this.#use(incarnation);
    if (other !== undefined) {
      connection.close();
      return other;
    }
    this.#owners.set(incarnation, { connection, uses: 0 });
    const made = this.#use(incarnation);
    if (made === undefined) throw unreachable("unavailable", `${connection.url} was lost again`);
    return made;
  }

  /** A session that either side opened for another purpose. */
  #open(incarnation: bigint): OwnerLink | undefined {
    for (const session of this.#sessions) {
      if (session.state === "open" && session.remote?.incarnation === incarnation)
        return { peer: session, release: () => {} };
    }
    return undefined;
  }

  #use(incarnation: bigint): OwnerLink | undefined {
    const owner = this.#owners.get(incarnation);
    if (owner === undefined) return undefined;
    const session = owner.connection.incarnation === incarnation ? owner.connection.current : undefined;
    if (session === undefined) {
      // The connection is lost, so its borrows have ended.
      this.#owners.delete(incarnation);
      owner.connection.close();
      return undefined;
    }
    owner.uses++;
    return {
      peer: session,
      release: () => {
        if (--owner.uses > 0) return;
        // The answer that returns the region leaves first. A caller that borrows again at once still finds the session.
        realTimers.setImmediate(() => {
          if (owner.uses > 0) return;
          if (this.#owners.get(incarnation) === owner) this.#owners.delete(incarnation);
          owner.connection.close();
        });
      },
    };
  }

  async #connectTo({ urls, incarnation }: RegionHandle, untilMs: number): Promise<OwnerConnection> {
    const tried: string[] = [];
    let isGone = false;
    for (const url of fastestFirst(urls)) {
      const fault = unusable(url);
      if (fault !== undefined) {
        tried.push(`${url}: ${fault}`);
        continue;
      }
      const leftMs = untilMs - realClock.now();
      if (leftMs < leastTryMs) {
        tried.push(`${url}: there was no time left to try it`);
        continue;
      }
      try {
        const connection = await this.#connect(url, leftMs);
        if (connection.incarnation === incarnation) return connection;
        connection.close();
        isGone = true;
        tried.push(`${url}: another engine answers there`);
      } catch (error) {
        tried.push(error instanceof RpcError ? error.plainMessage : (error as Error).message);
      }
    }
    throw unreachable(isGone ? "not_found" : "unavailable", tried.join("; ") || "the handle has no URL");
  }
}

function unreachable(code: "not_found" | "unavailable", why: string): RpcError {
  const message = `borrow: the owner of the region cannot be reached: ${why}`;
  return new RpcError({ code, message });
}

/** The reason why a URL in a handle cannot be connected to. */
function unusable(url: string): string | undefined {
  try {
    const { scheme, host } = parseUrl(url);
    if (!hasHosts(scheme) || !isWildcard(host)) return undefined;
    return "the owner listens on every interface, which is not an address: make it listen at the address that others use";
  } catch {
    return "this process does not support the URL";
  }
}

async function unlessAborted(work: Promise<OwnerConnection>, signal: AbortSignal): Promise<OwnerConnection> {
  let stop = () => {};
  const aborted = new Promise<never>((_, reject) => {
    stop = () =>
      reject(
        new RpcError({ code: "cancelled", message: "borrow: the signal was aborted", cause: signal.reason }),
      );
    if (signal.aborted) stop();
    else signal.addEventListener("abort", stop);
  });
  try {
    return await Promise.race([work, aborted]);
  } catch (error) {
    if (signal.aborted)
      work.then(
        (connection) => connection.close(),
        () => {},
      );
    throw error;
  } finally {
    signal.removeEventListener("abort", stop);
  }
}
