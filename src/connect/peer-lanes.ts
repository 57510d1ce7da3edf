import { RpcError } from "../base/errors/rpc-error.ts";
import type { Clock } from "../base/time/clock.ts";
import type { OutgoingCall } from "../call/outgoing-call.ts";
import type { CallSession } from "../client/session-source.ts";
import { isWildcard } from "../fabric/host.ts";
import { type FabricUrl, formatHostUrl, hasHosts, parseUrl } from "../fabric/libfabric/url.ts";
import type { LaneAddress } from "../wire/handshake.ts";
import type { BackendSet } from "./backend-set.ts";
import type { LaneRouting } from "./peer-connection.ts";
import type { BackendStats } from "./peer-state.ts";
import type { Resolver, ResolverListener } from "./resolver.ts";

/** What is used here of the set that the lanes are backends of. */
type LaneBackends = Pick<
  BackendSet,
  | "callsOut"
  | "callsWaiting"
  | "close"
  | "closed"
  | "has"
  | "idle"
  | "isReached"
  | "onGone"
  | "services"
  | "session"
  | "stats"
  | "takesCalls"
  | "tryNow"
>;

/** What lanes are reached with. */
export interface PeerLanesContext {
  /** Of the dispatcher: the engine that announces the lanes. */
  readonly url: string;
  readonly clock: Clock;
  /** Makes the set of backends, whose resolver the announcements are. */
  backends(lanes: Resolver & Pick<PeerLanes, "incarnationAt">): LaneBackends;
  /** Keeps the dispatcher connected in the background, until the returned function is called. */
  keepDispatcher(): () => void;
}

/**
 * The worker lanes of a peer, where its calls go. It begins with the first announcement of the dispatcher, follows
 * each further one, and ends with the connection. The dispatcher is kept connected, since changes are announced by it,
 * and no call would find out that it was lost.
 */
export class PeerLanes implements LaneRouting, Resolver {
  readonly name: string;
  readonly #context: PeerLanesContext;
  readonly #backends: LaneBackends;
  readonly #leaveDispatcher: () => void;
  #listener: ResolverListener | undefined;
  #announced: readonly LaneAddress[] = [];

  /** @throws RpcError `internal` for a lane at no address of the dispatcher's kind. */
  constructor(context: PeerLanesContext, lanes: readonly LaneAddress[]) {
    this.#context = context;
    this.name = `the lanes of ${context.url}`;
    this.#announced = this.#reachable(lanes);
    this.#backends = context.backends(this);
    this.#leaveDispatcher = context.keepDispatcher();
  }

  /** Tells the backends which lanes there are. */
  start(listener: ResolverListener): () => void {
    this.#listener = listener;
    listener.onUrls(this.#announced.map(({ url }) => url));
    return () => {
      this.#listener = undefined;
    };
  }

  get callsOut(): number {
    return this.#backends.callsOut;
  }

  get callsWaiting(): number {
    return this.#backends.callsWaiting;
  }

  get idle(): boolean {
    return this.#backends.idle;
  }

  get services(): string[] | undefined {
    return this.#backends.services;
  }

  get stats(): readonly BackendStats[] {
    return this.#backends.stats;
  }

  /**
   * A lane that is announced and tried for the first time counts: a server that has just come is no worse than others.
   */
  get takesCalls(): boolean {
    return this.#announced.some(({ url, incarnation }) =>
      this.#backends.takesCalls(url, incarnation === 0n ? "now" : "soon"),
    );
  }

  has(url: string): boolean {
    return this.#backends.has(url);
  }

  /** The engine that is announced there; 0 while there is none. */
  incarnationAt(url: string): bigint {
    return this.#announced.find((lane) => lane.url === url)?.incarnation ?? 0n;
  }

  session(call: OutgoingCall, input: unknown): CallSession | Promise<CallSession> {
    return this.#backends.session(call, input);
  }

  /**
   * The engine that announced the former lanes knows for certain that those it does not announce any more have ended.
   * Another engine at its address knows nothing of them.
   *
   * @throws RpcError `internal` as the constructor.
   */
  onLanes(lanes: readonly LaneAddress[], sameEngine: boolean): void {
    const before = this.#announced;
    this.#announced = this.#reachable(lanes);
    this.#listener?.onUrls(this.#announced.map(({ url }) => url));
    const living = new Set(this.#announced.map(({ incarnation }) => incarnation));
    for (const { url, incarnation } of before)
      if (incarnation !== 0n && !living.has(incarnation)) this.#backends.onGone(url, incarnation, sameEngine);
    const known = new Set(before.map(({ incarnation }) => incarnation));
    for (const { url, incarnation } of this.#announced)
      if (incarnation !== 0n && !known.has(incarnation)) this.#backends.tryNow(url).catch(() => {});
  }

  /**
   * Resolves when all lanes with an engine have been tried, or the time is over, and one is connected: so the first
   * calls find them all. While none is connected, lanes that are being replaced are waited for.
   *
   * @throws RpcError `unavailable` when none can be reached.
   */
  async reached(timeoutMs: number): Promise<void> {
    const { clock } = this.#context;
    const untilMs = clock.now() + timeoutMs;
    const hasEngine = ({ incarnation }: LaneAddress) => incarnation !== 0n;
    let failed: unknown;
    const tryAll = (lanes: readonly LaneAddress[]) =>
      Promise.all(
        lanes.map(({ url }) =>
          this.#backends.tryNow(url).catch((error) => {
            failed = error;
          }),
        ),
      );
    await this.#atMost(timeoutMs, tryAll(this.#announced.filter(hasEngine)));
    while (!this.#backends.isReached) {
      const leftMs = untilMs - clock.now();
      if (leftMs <= 0 || this.#backends.closed || this.#announced.every(hasEngine))
        throw this.#unreached(failed);
      await this.#atMost(Math.min(leftMs, lookMs));
      // Lanes that are back are tried as soon as they are announced. Without an announcement they are tried now and
      // then.
      await this.#atMost(
        untilMs - clock.now(),
        Promise.any(this.#announced.map(({ url }) => this.#backends.tryNow(url))),
      );
    }
  }

  close(reason?: RpcError): void {
    this.#leaveDispatcher();
    this.#backends.close(reason);
  }

  /** Until the work is done, however it ends, or the time is over. */
  #atMost(ms: number, work?: Promise<unknown>): Promise<void> {
    return new Promise((resolve) => {
      const cancel = this.#context.clock.timer(Math.max(1, ms), resolve);
      const done = () => {
        cancel();
        resolve();
      };
      work?.then(done, done);
    });
  }

  #unreached(cause: unknown): RpcError {
    const why = cause instanceof Error ? `: ${cause.message}` : "";
    return new RpcError({
      code: "unavailable",
      message: `no lane of ${this.name} can be reached${why}`,
      origin: "local",
      cause,
    });
  }

  /** As they can be reached from here: a lane that listens on every interface is reached at the dispatcher's host. */
  #reachable(lanes: readonly LaneAddress[]): LaneAddress[] {
    const { url: dispatcherUrl } = this.#context;
    const dispatcher = parseUrl(dispatcherUrl);
    return lanes.map(({ url, incarnation }) => {
      const lane = parsed(url);
      if (lane?.scheme !== dispatcher.scheme)
        throw new RpcError({
          code: "internal",
          message: `${dispatcherUrl} announces a lane at ${url}, which is not a ${dispatcher.scheme} address`,
          origin: "remote",
        });
      const { scheme, host, port } = lane;
      const isEverywhere = hasHosts(scheme) && isWildcard(host);
      return { url: isEverywhere ? formatHostUrl(scheme, dispatcher.host, port) : url, incarnation };
    });
  }
}

/** The time between tries of lanes that are being replaced, while no lane serves. */
const lookMs = 50;

function parsed(url: string): FabricUrl | undefined {
  try {
    return parseUrl(url);
  } catch {
    return undefined;
  }
}
