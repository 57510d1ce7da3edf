import type { HealthBook, ServiceHealth } from "../server/health-book.ts";

/**
 * The health of an engine and its services. Every service serves until `set` changes that. The engine reports its
 * health to each peer when it connects, and at each change. Balanced peers send no calls to a service that does not
 * serve, and programs read it from `peer.health`.
 */
export class EngineHealth {
  readonly #book: HealthBook;

  /** @internal The engine makes it. */
  constructor(book: HealthBook) {
    this.#book = book;
  }

  /**
   * Sets whether a service serves; "" is the whole engine. A service that does not serve still answers the calls that
   * reach it: calls through a peer that is not balanced, and calls under way. While the engine opens, the service need
   * not be served yet. `reason` explains the status in 1 to 256 characters; default: no reason.
   *
   * @example
   * const server = await Engine.open({
   *   listen: "tcp://0.0.0.0:7400",
   *   serve: (opening) => {
   *     opening.health.set("files.v1", "not_serving", { reason: "reading the index" });
   *     return [files];
   *   },
   * });
   * server.health.set("files.v1", "serving"); // when the index has been read
   *
   * @throws TypeError for a service that the engine does not serve, a bad status or option; `Engine.open` rejects if
   *   the service was never added. RangeError when more than 256 services do not serve.
   */
  set(service: string, status: "serving" | "not_serving", options: { readonly reason?: string } = {}): void {
    this.#book.set(service, status, options);
  }

  /**
   * The health of a service, as peers read it from `peer.health`; "" is the whole engine. Undefined for a service that
   * is neither served nor was ever set.
   */
  of(service = ""): ServiceHealth | undefined {
    return this.#book.of(service);
  }
}
