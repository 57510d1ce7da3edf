import type { RpcError } from "../base/errors/rpc-error.ts";
import type { ClientOptions } from "../client/call-options.ts";
import { type Client, createClient } from "../client/client.ts";
import type { AnyService } from "../contract/service.ts";
import type { Identity } from "../security/identity.ts";
import type { ServiceHealth } from "../server/health-book.ts";
import type { PeerConnection } from "./peer-connection.ts";
import type { PeerEvents, PeerState, PeerStats } from "./peer-state.ts";

/**
 * A connection to another engine, made by `engine.connect` or `engine.lazyPeer`. When the connection is lost, its open
 * calls fail with `unavailable`, and the next call connects again. A restarted process at the same address is another
 * incarnation. It never gets calls or transfers that were meant for its predecessor.
 */
export class Peer implements AsyncDisposable {
  readonly #connection: PeerConnection;

  /** @internal Made by `engine.connect` and `engine.lazyPeer`. */
  constructor(connection: PeerConnection) {
    this.#connection = connection;
  }

  /** The URL of the present connection, or of the last one. Before the first: the first URL that was given. */
  get url(): string {
    return this.#connection.url;
  }

  get state(): PeerState {
    return this.#connection.state;
  }

  /**
   * A random 64-bit number that the peer's engine drew when it opened. Another number means that the peer was
   * restarted. Undefined while not connected.
   */
  get incarnation(): bigint | undefined {
    return this.#connection.incarnation;
  }

  /**
   * The identity that the peer has proven: by its certificate, by a pre-shared key, or for `shm` by the kernel.
   * Undefined while not connected, and for a peer without a proof.
   */
  get identity(): Identity | undefined {
    return this.#connection.identity;
  }

  /** Whether only the peer can read what is sent to it: sessions are sealed, or do not leave this host. */
  get isConfidential(): boolean {
    return this.#connection.isConfidential;
  }

  /** The peer's software and provider, for logs. Empty while not connected. */
  get agent(): string {
    return this.#connection.agent;
  }

  /** The names of the services that the peer serves. Empty while not connected. */
  get services(): string[] {
    return this.#connection.services;
  }

  /**
   * The health that the peer last reported: of a service, with `#` and the instance if it has one, or of the whole
   * peer. Sends no request: a peer reports its health when it is connected, and at each change (`peer.on("health")`).
   * Undefined while not connected, and for a service that the peer neither serves nor has set a health for.
   *
   * @example
   * const health = peer.health("files.v1");
   * if (health?.status !== "serving") console.warn(health?.reason);
   */
  health(service = ""): ServiceHealth | undefined {
    const { state, services } = this.#connection;
    if (this.#connection.current === undefined) return undefined;
    const reason = this.#connection.unhealthyReason(service);
    if (reason === undefined && service !== "" && !services.includes(service)) return undefined;
    if (state === "draining") return { status: "draining" };
    if (reason === undefined) return { status: "serving" };
    return reason === "" ? { status: "not_serving" } : { status: "not_serving", reason };
  }

  /**
   * Makes a typed client of one of the peer's services. A client holds nothing and needs no closing. It stays valid
   * when the peer restarts. If the peer does not serve the service, calls fail with `unimplemented`.
   *
   * @example
   * const greeter = peer.client(Greeter, { timeoutMs: 500 });
   * const { text } = await greeter.greet({ name: "Ada" });
   *
   * @throws TypeError for bad options, and for anything but a service.
   */
  client<S extends AnyService>(service: S, options: ClientOptions = {}): Client<S> {
    return createClient(this.#connection, service, options);
  }

  /**
   * Calls `listener` for each event of that name. The returned function removes the listener. Closing the peer removes
   * all listeners. A listener may call, close and add listeners. An error that it throws is an uncaught exception.
   *
   * @example
   * peer.on("lost", ({ reason }) => console.error(`${peer.url}: ${reason.message}`));
   * const off = peer.on("back", ({ restarted }) => console.log(restarted ? "restarted" : "reconnected"));
   * off(); // removes the second listener
   */
  on<E extends keyof PeerEvents>(event: E, listener: (detail: PeerEvents[E]) => void): () => void {
    return this.#connection.on(event, listener);
  }

  /** State and traffic of the peer. Plain data. */
  stats(): PeerStats {
    return this.#connection.stats();
  }

  /**
   * Closes the connection with a goodbye. Open calls fail with `reason`, and so do calls that are made later: with its
   * code, its message and its cause. Default: `unavailable`. Safe to call twice; the first reason counts.
   */
  close(reason?: RpcError): void {
    this.#connection.close(reason);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }
}
