import type { HealthBook, ServiceHealth } from "../server/health-book.ts";

/**
 * The health of an engine and its services. Everything serves until `set` says otherwise. The engine tells each peer when
 * it connects, and at each change. Balanced peers send no calls to a service that does not serve, and `peer.health` tells
 * it to programs.
 */
export class EngineHealth {
  readonly #book: HealthBook;

  /** @internal Made with its engine. */
  constructor(book: HealthBook) {
    this.#book = book;
  }

  /**
   * Says whether a service serves; "" is the whole engine. A service that does not serve still answers the calls that
   * reach it: of one peer, and those that were under way. While the engine opens, the service need not be served yet.
   * `reason` says why, in 1 to 256 characters; default: none.
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
   * @throws TypeError for a service that the engine does not serve, a bad status or option; `Engine.open` rejects where it
   * never came. RangeError where more than 256 services do not serve.
   */
  set(service: string, status: "serving" | "not_serving", options: { readonly reason?: string } = {}): void {
    this.#book.set(service, status, options);
  }

  /**
   * The health of a service as `peer.health` tells it; "" is the whole engine. Undefined for a service that is neither served
   * nor was ever set.
   */
  of(service = ""): ServiceHealth | undefined {
    return this.#book.of(service);
  }
}
