import type { RpcError } from "../base/errors/rpc-error.ts";
import type { ClientOptions } from "../client/call-options.ts";
import { type Client, createClient } from "../client/client.ts";
import type { AnyService } from "../contract/service.ts";
import type { BackendSet } from "./backend-set.ts";
import type { BackendStats } from "./peer-state.ts";

/**
 * Several engines with the same services, made by `engine.connect` with several URLs or a
 * resolver, or by `engine.lazyPeer` with a resolver. The policy picks a
 * ready backend for each call: among connected ones, otherwise among suspect ones, otherwise among ejected ones. If no
 * backend is ready, a call waits for the first one that connects. Lost backends are retried in the background.
 *
 * @example
 * const storage = await engine.connect(["tcp://10.0.0.1:7400", "tcp://10.0.0.2:7400"], { policy: "roundRobin" });
 * const client = storage.client(Files);
 * for (const { url, state, calls } of storage.backends) console.log(url, state, calls.out);
 */
export class BalancedPeer implements AsyncDisposable {
  readonly #backends: BackendSet;
  readonly #onClosed: (self: BalancedPeer) => void;

  /** @internal Made by `engine.connect` and `engine.lazyPeer`. */
  constructor(backends: BackendSet, onClosed: (self: BalancedPeer) => void) {
    this.#backends = backends;
    this.#onClosed = onClosed;
  }

  /** For logs: "one of" and the URLs, or the name of the resolver. */
  get name(): string {
    return this.#backends.name;
  }

  /** The backends, in the order of the list of URLs. */
  get backends(): BackendStats[] {
    return this.#backends.stats;
  }

  /** Makes a typed client whose calls go to the backends. A client holds no resources and needs no closing. */
  client<S extends AnyService>(service: S, options: ClientOptions = {}): Client<S> {
    return createClient(this.#backends, service, options);
  }

  /**
   * Closes all connections. Open calls fail with `reason`, and so do calls that are made later: with its code, its
   * message and its cause. Default: `unavailable`. Safe to call twice; the first reason counts.
   */
  close(reason?: RpcError): void {
    this.#backends.close(reason);
    this.#onClosed(this);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }
}
