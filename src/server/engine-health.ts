import { checkOptions, type FieldsOf, text } from "../base/options/options.ts";
import { greetingLimits, type ToldHealth } from "../wire/handshake.ts";

/** What an engine says of one of its services, or of itself. */
export interface ServiceHealth {
  /** `draining`: the engine finishes what runs, and takes no new calls. */
  readonly status: "serving" | "not_serving" | "draining";
  /** Why, for people. */
  readonly reason?: string;
}

const healthFields = {
  reason: text(1, greetingLimits.maxReasonLength),
} satisfies FieldsOf<Pick<ServiceHealth, "reason">>;

/** How many services an engine keeps a health of. */
const maxNames = greetingLimits.maxServices;

/**
 * The health of an engine and its services. Everything serves until `set` says otherwise. Peers learn each change by a
 * control message, and balanced peers send no calls to a service that does not serve. Health checks ask by the built-in
 * service `cinnabar.health.v1`.
 */
export class EngineHealth {
  readonly #services = new Map<string, ServiceHealth>();
  readonly #isServed: (service: string) => boolean;
  readonly #onChanged: () => void;
  readonly #watchers = new Set<() => void>();
  #edition = 0;
  #drains = false;

  /** @internal Made with its engine. `onChanged`: peers must be told. */
  constructor(isServed: (service: string) => boolean, onChanged: () => void) {
    this.#isServed = isServed;
    this.#onChanged = onChanged;
  }

  /**
   * Says whether a service serves; "" is the whole engine. A service that does not serve still answers the calls that
   * reach it: of one peer, and those that were under way. The service need not be served yet. `reason` says why, in 1
   * to 256 characters; default: none.
   *
   * @example
   * const engine = await Engine.open({
   *   listen: "tcp://0.0.0.0:7400",
   *   serve: (opening) => {
   *     opening.health.set("files.v1", "not_serving", { reason: "reading the index" });
   *     return [files];
   *   },
   * });
   * await index.read();
   * engine.health.set("files.v1", "serving");
   *
   * @throws TypeError for a bad name, status or option. RangeError where more than 256 services do not serve.
   */
  set(service: string, status: "serving" | "not_serving", options: { readonly reason?: string } = {}): void {
    const { maxNameLength, maxNotServing } = greetingLimits;
    if (typeof service !== "string" || service.length > maxNameLength)
      throw new TypeError(`health.set: service must be a string of at most ${maxNameLength} characters`);
    if (status !== "serving" && status !== "not_serving")
      throw new TypeError(
        `health.set: status must be "serving" or "not_serving", not ${JSON.stringify(status)}`,
      );
    checkOptions("health.set", options, healthFields);
    const { reason } = options;
    const before = this.#services.get(service);
    if (before?.status === status && before.reason === reason) return;
    if (before === undefined && this.#services.size >= maxNames)
      throw new RangeError(`health.set: an engine has the health of at most ${maxNames} services`);
    if (status === "not_serving" && before?.status !== status && this.#notServing().length >= maxNotServing)
      throw new RangeError(`health.set: at most ${maxNotServing} services can be not serving`);
    this.#services.set(service, reason === undefined ? { status } : { status, reason });
    this.#edition++;
    this.#onChanged();
    this.#tellWatchers();
  }

  /**
   * The health of a service as a check gets it; "" is the whole engine. Undefined for a service that is neither served
   * nor was ever set.
   */
  of(service = ""): ServiceHealth | undefined {
    const own = this.#services.get(service);
    if (own === undefined && service !== "" && !this.#isServed(service)) return undefined;
    if (this.#drains) return { status: "draining" };
    const whole = this.#services.get("");
    return whole?.status === "not_serving" ? whole : (own ?? { status: "serving" });
  }

  /** @internal What peers are told. Undefined while nothing was ever set. */
  get told(): ToldHealth | undefined {
    if (this.#edition === 0) return undefined;
    return { edition: this.#edition, notServing: this.#notServing() };
  }

  /** @internal The engine drains. Peers are told otherwise. */
  onDraining(): void {
    this.#drains = true;
    this.#tellWatchers();
  }

  /** @internal More is served. */
  onServed(): void {
    this.#tellWatchers();
  }

  /** @internal Calls `watcher` after each change, until the returned function is called. */
  watch(watcher: () => void): () => void {
    this.#watchers.add(watcher);
    return () => void this.#watchers.delete(watcher);
  }

  #notServing(): [string, string][] {
    return [...this.#services].flatMap(([service, { status, reason = "" }]) =>
      status === "not_serving" ? [[service, reason] as [string, string]] : [],
    );
  }

  #tellWatchers(): void {
    for (const watcher of this.#watchers) watcher();
  }
}
