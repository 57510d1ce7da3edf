/*
 * The room `connect`: finds the engine behind a URL, keeps a connection to it, and picks a backend for each call.
 * Promises: a lost connection is made again without its callers. Each attempt has a time limit. A call waits for a
 * connection only within its deadline.
 * Takes: sessions from `session`, ports from `fabric`, typed clients from `client`, the rules for sealing from
 * `security`.
 */

import { fabricError, noDescriptors, peerLacksDescriptors } from "../base/errors/fabric-error.ts";
import { closedError, RpcError } from "../base/errors/rpc-error.ts";
import { textOf } from "../base/errors/thrown.ts";
import type { WindowLimits } from "../base/flow/in-flight-window.ts";
import type { Complete } from "../base/options/options.ts";
import { Backoff, backoffMs } from "../base/time/backoff.ts";
import { realClock } from "../base/time/clock.ts";
import { parseUrl } from "../fabric/libfabric/url.ts";
import type { Port, Route } from "../fabric/port.ts";
import { fastestFirst } from "../fabric/preference.ts";
import type { Target } from "../fabric/target.ts";
import { isSealed, type ResolvedSecurity } from "../security/security-options.ts";
import type { Implementation } from "../server/implement.ts";
import type { EngineServices, OfferedServices } from "../session/connection/engine-services.ts";
import type { Session } from "../session/connection/session.ts";
import type { SessionTable } from "../session/connection/session-table.ts";
import { ConnectSilence, MessagesLost, sendFailure } from "../session/opening/end-reasons.ts";
import type { Greeting } from "../wire/handshake.ts";
import { BackendSet } from "./backend-set.ts";
import { BalancedPeer } from "./balanced-peer.ts";
import {
  type BalanceOptions,
  type ConnectOptions,
  type ReconnectOptions,
  reconnectField,
  resolveBalanceOptions,
  resolveConnectOptions,
  resolverOf,
} from "./connect-options.ts";
import { Peer } from "./peer.ts";
import { mayPass, PeerConnection } from "./peer-connection.ts";
import type { Ports } from "./ports.ts";
import type { FoundEngine, Resolver } from "./resolver.ts";

/** The terms of every session of a connection. */
interface ConnectionTerms {
  readonly timeoutMs: number;
  readonly reconnect: Complete<ReconnectOptions>;
  readonly window: WindowLimits;
  /** The services of this engine for the peer. */
  readonly served: OfferedServices;
  /** The name that peers must prove. Undefined: the host of their URL. */
  readonly name: string | undefined;
  /** The required engine. Undefined: any engine. */
  readonly incarnation?: bigint | undefined;
  /** Refuses an engine that has answered by throwing an RpcError. */
  readonly admit?: ((engine: FoundEngine) => void) | undefined;
}

/**
 * The wait for an answer to the first hello before another is sent; each further wait is twice as long. A hello can be
 * lost silently. After the end of a connection, libfabric's tcp drops messages to its address until it has noticed that
 * end, for instance when a server has just been restarted.
 */
const firstAttemptMs = 1000;

/**
 * The bounds of the pause after a hello on a broken connection. The next hello makes another connection, if the
 * provider has noticed by then.
 */
const lostHelloPause = { baseDelayMs: 5, maxDelayMs: 500 };

/**
 * EIO and ECANCELED are the errors of verbs for a message on a broken connection, and ENOTCONN is that of tcp. A broken
 * connection over tcp ends a session with ECANCELED. Before the welcome comes, only the hello was sent. The welcome may
 * be lost too.
 *
 * ECONNRESET has two causes. The first hello may have gone over the connection of the former server, whose end the
 * provider has not read yet. Or a server of another scheme listens there, which resets a new connection as well.
 */
function isLostHello(error: unknown, lostBefore: number): boolean {
  if (error instanceof MessagesLost) return true;
  const fabric = error instanceof RpcError ? error.fabric : undefined;
  if (fabric?.op !== "fi_send") return false;
  return lostHelloCodes.has(fabric.code) || (fabric.code === connectionReset && lostBefore === 0);
}

const lostHelloCodes: ReadonlySet<number> = new Set([5, 107, 125]);
const connectionReset = 104;

/** The route to a peer, if the port connects for it. */
async function routeTo(port: Port, target: Target, url: string, timeoutMs: number): Promise<Route> {
  try {
    return await port.route(target, timeoutMs);
  } catch (error) {
    if (!(error instanceof RpcError) || error.fabric === undefined) throw error;
    throw sendFailure({ peerName: url, port, transferRefused: false }, error.fabric.code);
  }
}

/** Enters a peer's address into the port. The error names the URL and the remedy. */
function admit(port: Port, address: Uint8Array, url: string): number {
  try {
    return port.admit(address);
  } catch (error) {
    if (!(error instanceof RpcError) || error.fabric === undefined) throw error;
    const { scheme } = parseUrl(url);
    const { name } = error.fabric;
    const lack = name === "EUSERS" ? peerLacksDescriptors : noDescriptors[name];
    let message = `cannot connect to ${url}: ${lack ?? error.plainMessage}`;
    if (scheme === "shm" && name === "ECONNREFUSED")
      message = `nobody listens at ${url}: no server of this user and host has that name`;
    if (scheme === "shm" && name === "ENOSPC")
      message = `cannot connect to ${url}: this engine has as many peers over shm as it may, 250`;
    throw fabricError({ ...error.fabric, rpcCode: error.code, retryable: error.retryable, message });
  }
}

/** Makes the connections of an engine, and the peers and balanced peers on them; closes all with the engine. */
export class Connector {
  readonly #engine: EngineServices;
  readonly #sessions: Pick<SessionTable, "connect">;
  readonly #ports: Pick<Ports, "locate" | "towards">;
  readonly #serve: (implementations?: readonly Implementation[]) => OfferedServices;
  readonly #timeoutMs: number;
  readonly #assertOpen: () => void;
  readonly #connections = new Set<PeerConnection>();
  readonly #balancedPeers = new Set<BalancedPeer>();
  readonly #backoff = new Backoff(realClock, false);

  /**
   * `serve` makes the services for one peer, by default none. `timeoutMs` is the default for the welcome; `assertOpen`
   * throws when the engine makes no more connections.
   */
  constructor(
    engine: EngineServices,
    sessions: Pick<SessionTable, "connect">,
    ports: Pick<Ports, "locate" | "towards">,
    serve: (implementations?: readonly Implementation[]) => OfferedServices,
    timeoutMs: number,
    assertOpen: () => void,
  ) {
    this.#engine = engine;
    this.#sessions = sessions;
    this.#ports = ports;
    this.#serve = serve;
    this.#timeoutMs = timeoutMs;
    this.#assertOpen = assertOpen;
  }

  /**
   * Resolves when the engine at `url` has welcomed this one. If calls wait for a lost peer, they also wait for an
   * absent peer: then it resolves after the first try.
   */
  async peer(url: string, options: ConnectOptions): Promise<Peer> {
    return new Peer(await this.connection(url, options));
  }

  /** The connection of a peer, as from `peer`. */
  async connection(url: string, options: ConnectOptions): Promise<PeerConnection> {
    const connection = this.#connect([url], this.#terms(options));
    try {
      await connection.session();
    } catch (error) {
      if (!connection.waitForReady || connection.closed || !mayPass(error)) {
        connection.close();
        throw error;
      }
    }
    return connection;
  }

  /** A peer that connects with its first call, by the first of the URLs that answers, the fastest fabric first. */
  lazyPeer(urls: readonly string[], options: ConnectOptions): Peer {
    for (const url of urls) parseUrl(url);
    this.#assertOpen();
    return new Peer(this.#connect(fastestFirst(urls), this.#terms(options)));
  }

  async balanced(where: readonly string[] | Resolver, options: BalanceOptions): Promise<BalancedPeer> {
    const { timeoutMs } = resolveBalanceOptions(options, this.#timeoutMs);
    const [balanced, backends] = this.#balance(where, options);
    try {
      // A resolver may never report anything.
      await withTimeout(timeoutMs, `${backends.name}: no backend was reached`, backends.connected());
    } catch (error) {
      // A fixed list without a URL stays empty.
      const mayCome = !Array.isArray(where) || where.length > 0;
      if (backends.waitForReady && mayCome && !backends.closed && mayPass(error)) return balanced;
      balanced.close();
      throw error;
    }
    return balanced;
  }

  /** A balanced peer whose calls wait for the first report of its resolver. */
  lazyBalanced(resolver: Resolver, options: BalanceOptions): BalancedPeer {
    return this.#balance(resolver, options)[0];
  }

  #balance(where: readonly string[] | Resolver, options: BalanceOptions): [BalancedPeer, BackendSet] {
    const resolved = resolveBalanceOptions(options, this.#timeoutMs);
    const resolver = resolverOf(where);
    this.#assertOpen();
    // The set tries its lost backends again, so a connection need not.
    const terms: ConnectionTerms = {
      ...resolved,
      reconnect: reconnectField.fallback,
      served: this.#serve(resolved.serve),
      admit: resolver.admit?.bind(resolver),
    };
    const connectionTo = (url: string) => this.#connect([url], terms);
    const backends = new BackendSet(this.#engine, resolver.name, resolved, connectionTo);
    const balanced = new BalancedPeer(backends, (self) => this.#balancedPeers.delete(self));
    this.#balancedPeers.add(balanced);
    try {
      backends.follow(resolver);
    } catch (error) {
      balanced.close();
      throw error;
    }
    return [balanced, backends];
  }

  close(): void {
    for (const balanced of this.#balancedPeers) balanced.close();
    for (const connection of this.#connections) connection.close();
    this.#backoff.endAll();
  }

  #terms(options: ConnectOptions): ConnectionTerms {
    const resolved = resolveConnectOptions(options, this.#timeoutMs);
    return { ...resolved, served: this.#serve(resolved.serve) };
  }

  #connect(urls: readonly string[], terms: ConnectionTerms): PeerConnection {
    const { reconnect, window } = terms;
    const [url = "", ...otherUrls] = urls;
    const connection = new PeerConnection(url, this.#engine, {
      otherUrls,
      open: (self) => this.#openSomewhere(self, terms),
      onClosed: (self) => this.#connections.delete(self),
      reconnect,
      window,
    });
    this.#connections.add(connection);
    return connection;
  }

  /** Opens a session at the first URL that answers. Each URL has its share of the remaining time. */
  async #openSomewhere(connection: PeerConnection, terms: ConnectionTerms): Promise<Session> {
    const { urls } = connection;
    const untilMs = realClock.now() + terms.timeoutMs;
    const failures: RpcError[] = [];
    for (const [index, url] of urls.entries()) {
      const timeoutMs = Math.max(1, (untilMs - realClock.now()) / (urls.length - index));
      try {
        const session = await this.#openSession(connection, url, { ...terms, timeoutMs });
        connection.url = url;
        return session;
      } catch (error) {
        if (urls.length === 1 || connection.closed || !(error instanceof RpcError)) throw error;
        failures.push(error);
      }
    }
    throw nowhere(failures);
  }

  /**
   * `timeoutMs` covers the look-up of the name, the opening of a port, and the welcome. Of several addresses of a host,
   * each is tried when the former one has failed or has not answered for a while. The first session counts (RFC 8305).
   */
  async #openSession(connection: PeerConnection, url: string, terms: ConnectionTerms): Promise<Session> {
    this.#assertOpen();
    const { name, timeoutMs } = terms;
    if (name !== undefined) assertProvable(name, url, this.#engine.security);
    const untilMs = realClock.now() + timeoutMs;
    const lookedUp = this.#ports.locate(url);
    const targets = await withTimeout(timeoutMs, `${url} could not be looked up`, lookedUp);
    const [first] = targets as readonly [Target];
    if (targets.length === 1) return this.#openAt(first, connection, url, terms, untilMs);
    let winner: Session | undefined;
    const attempt = async (target: Target): Promise<Session> => {
      const isLate = () => winner !== undefined;
      const session = await this.#openAt(target, connection, url, terms, untilMs, isLate);
      if (isLate()) session.end(closedError(url));
      else winner = session;
      return session;
    };
    const attempts: Promise<Session>[] = [];
    for (const target of targets) {
      const attempted = attempt(target);
      attempts.push(attempted);
      if (attempts.length < targets.length) await settledOrLate(attempts);
      if (winner !== undefined) return winner;
    }
    return Promise.any(attempts).catch(({ errors }: AggregateError) => {
      if (connection.closed) throw closedError(url);
      throw atNoAddress(url, targets, errors);
    });
  }

  /** Opens a session at one address of the host. `isLate`: another address has led to the peer. */
  async #openAt(
    target: Target,
    connection: PeerConnection,
    url: string,
    { timeoutMs, window, served, name, incarnation, admit: judge }: ConnectionTerms,
    untilMs: number,
    isLate = () => false,
  ): Promise<Session> {
    const port = await this.#ports.towards(target);
    let lostHellos = 0;
    let repeats: Greeting["nonce"] | undefined;
    for (let attemptMs = firstAttemptMs; ; ) {
      this.#assertOpen();
      // A resolver may name new backends without end: a closed backend costs no further hello.
      if (connection.closed || isLate()) throw closedError(url);
      const routeMs = Math.max(1, untilMs - realClock.now());
      const { address, replyTo } = await routeTo(port, target, url, routeMs);
      this.#assertOpen();
      if (connection.closed || isLate()) throw closedError(url);
      const leftMs = Math.max(1, untilMs - realClock.now());
      const last = leftMs < 2 * attemptMs;
      try {
        const session = await this.#sessions.connect({
          port,
          address: admit(port, address, url),
          replyTo,
          peerName: url,
          answerMs: last ? leftMs : attemptMs,
          totalMs: leftMs,
          window,
          served,
          repeats,
          provenName: name,
        });
        this.#assertMeant(session, url, incarnation, judge);
        return session;
      } catch (error) {
        if (isLostHello(error, lostHellos)) {
          this.#assertOpen();
          const waitMs = backoffMs(lostHellos++, lostHelloPause);
          if (realClock.now() + waitMs > untilMs) throw error;
          await this.#backoff.pause(waitMs);
          continue;
        }
        if (!(error instanceof ConnectSilence)) throw error;
        if (last) throw new ConnectSilence(url, timeoutMs);
        repeats = error.nonce;
        attemptMs *= 2;
      }
    }
  }

  /** Ends the session with an engine of another incarnation. @throws RpcError with that reason. */
  #assertMeant(
    session: Session,
    url: string,
    meant: bigint | undefined,
    judge: ConnectionTerms["admit"],
  ): void {
    const { remote, identity } = session;
    const incarnation = remote?.incarnation ?? 0n;
    try {
      if (meant !== undefined && incarnation !== meant) throw otherEngine(url, incarnation, meant);
      judge?.({ url, incarnation, identity });
    } catch (error) {
      const refusal = error instanceof RpcError ? error : judgeFailed(url, error);
      if (refusal.code === "permission_denied")
        this.#engine.securityMeter.onRefused({
          refusal: "other_identity",
          peer: url,
          identity,
          why: refusal.message,
        });
      session.end(refusal);
      throw refusal;
    }
  }
}

/** The time of the first addresses of a host before the next one is tried (RFC 8305, section 5). */
const nextAddressMs = 250;

/** Resolves when an attempt has succeeded, the last one has failed, or it is time for the next. */
function settledOrLate(attempts: readonly Promise<Session>[]): Promise<void> {
  return new Promise((resolve) => {
    const cancel = realClock.timer(nextAddressMs, resolve, true);
    const go = () => {
      cancel();
      resolve();
    };
    attempts.at(-1)?.then(go, go);
    for (const attempt of attempts) attempt.then(go, () => {});
  });
}

/** The error when no address of a host led to the peer. */
function atNoAddress(url: string, targets: readonly Target[], errors: readonly unknown[]): unknown {
  const last = errors.at(-1);
  const failures = errors.filter((error) => error instanceof RpcError);
  if (failures.length < errors.length) return errors.find((error) => !(error instanceof RpcError));
  const { code, retryable } = failures.find((failure) => failure.retryable) ?? (last as RpcError);
  const each = failures.map(({ plainMessage }, i) => `${targets[i]?.host}: ${plainMessage}`).join("; ");
  const message = `no address of ${url} led to a peer: ${each}`;
  return new RpcError({ code, retryable, message, cause: last });
}

/** The error when no URL of an engine led to it. */
function nowhere(failures: readonly RpcError[]): RpcError {
  const last = failures.at(-1) as RpcError;
  const { code, retryable } = failures.find((failure) => failure.retryable) ?? last;
  const message = failures.map((failure) => failure.message).join("; ");
  return new RpcError({ code, retryable, message, cause: last });
}

/** The error for a value that a resolver's `admit` throws, other than a refusal. */
function judgeFailed(url: string, cause: unknown): RpcError {
  const message = `${url}: admit of the resolver failed: ${textOf(cause)}`;
  return new RpcError({ code: "internal", message, cause });
}

function otherEngine(url: string, found: bigint, meant: bigint): RpcError {
  const [is, not] = [found, meant].map((number) => number.toString(16).padStart(16, "0"));
  return new RpcError({
    code: "failed_precondition",
    message: `another engine answers at ${url}: its incarnation is ${is} instead of ${not}`,
  });
}

/** @throws RpcError `failed_precondition` when peers at the URL prove no name. */
function assertProvable(name: string, url: string, security: ResolvedSecurity | undefined): void {
  const { scheme } = parseUrl(url);
  if (isSealed(security, scheme) && security?.credentials?.kind === "tls") return;
  throw new RpcError({
    code: "failed_precondition",
    message: `connect: name is ${JSON.stringify(name)}, and peers over ${scheme} prove no name without security.tls`,
  });
}

/**
 * Resolves or rejects as `work` does, if it settles within `timeoutMs`. A later result is dropped.
 * @throws RpcError `unavailable` after `timeoutMs`. `failed` begins its message, as in "no backend was reached".
 */
async function withTimeout<T>(timeoutMs: number, failed: string, work: Promise<T>): Promise<T> {
  let cancel = () => {};
  const late = new Promise<never>((_, reject) => {
    cancel = realClock.timer(timeoutMs, () =>
      reject(new RpcError({ code: "unavailable", message: `${failed} within ${Math.round(timeoutMs)} ms` })),
    );
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    cancel();
  }
}
