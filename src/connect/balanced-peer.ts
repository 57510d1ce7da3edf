import type { ClientOptions } from "../client/call-options.ts";
import { type Client, createClient } from "../client/client.ts";
import type { AnyService } from "../contract/service.ts";
import type { BackendSet } from "./backend-set.ts";
import type { BackendStats } from "./peer-state.ts";

/**
 * Several engines with the same services, made by `engine.connect` with several URLs or a resolver. The policy picks a
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

  /** @internal Made by `engine.connect`. */
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

  /** Makes a typed client whose calls go to the backends. A client holds nothing and needs no closing. */
  client<S extends AnyService>(service: S, options: ClientOptions = {}): Client<S> {
    return createClient(this.#backends, service, options);
  }

  /** Closes all connections. Open calls fail with `unavailable`. Safe to call twice. */
  close(): void {
    this.#backends.close();
    this.#onClosed(this);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }
}
