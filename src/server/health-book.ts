import { checkOptions, type FieldsOf, nearest, text } from "../base/options/options.ts";
import { greetingLimits, type ToldHealth } from "../wire/handshake.ts";

/** The health that an engine reports of one of its services, or of itself. */
export interface ServiceHealth {
  /** `draining`: the engine finishes running calls, and takes no new calls. */
  readonly status: "serving" | "not_serving" | "draining";
  /** The reason, for people. */
  readonly reason?: string;
}

const healthFields = {
  reason: text(1, greetingLimits.maxReasonLength),
} satisfies FieldsOf<Pick<ServiceHealth, "reason">>;

/** The health of an engine's services. Every service serves at first. */
export class HealthBook {
  readonly #services = new Map<string, ServiceHealth>();
  readonly #served: () => readonly string[];
  readonly #onChanged: () => void;
  #edition = 0;
  #drains = false;
  #isTelling = false;
  #isOpening = true;

  /** `onChanged`: peers must be notified. Called once for all changes of a turn of the event loop. */
  constructor(served: () => readonly string[], onChanged: () => void) {
    this.#served = served;
    this.#onChanged = onChanged;
  }

  /** The engine has its first services. @throws TypeError for the health of a service that it does not serve. */
  onOpened(): void {
    this.#isOpening = false;
    for (const service of this.#services.keys()) this.#assertServed(service);
  }

  /** @throws as `EngineHealth.set`. */
  set(service: string, status: "serving" | "not_serving", options: { readonly reason?: string } = {}): void {
    const { maxNameLength, maxNotServing } = greetingLimits;
    if (typeof service !== "string" || service.length > maxNameLength)
      throw new TypeError(`health.set: service must be a string of at most ${maxNameLength} characters`);
    if (status !== "serving" && status !== "not_serving")
      throw new TypeError(
        `health.set: status must be "serving" or "not_serving", not ${JSON.stringify(status)}`,
      );
    checkOptions("health.set", options, healthFields);
    if (!this.#isOpening) this.#assertServed(service);
    const { reason } = options;
    const before = this.#services.get(service);
    if (before?.status === status && before.reason === reason) return;
    if (status === "not_serving" && before?.status !== status && this.#notServing().length >= maxNotServing)
      throw new RangeError(`health.set: at most ${maxNotServing} services can be not serving`);
    this.#services.set(service, reason === undefined ? { status } : { status, reason });
    this.#edition++;
    if (this.#isTelling) return;
    this.#isTelling = true;
    queueMicrotask(() => {
      this.#isTelling = false;
      this.#onChanged();
    });
  }

  /** The health of a service. Undefined for a service that is neither served nor was ever set. */
  of(service = ""): ServiceHealth | undefined {
    const own = this.#services.get(service);
    if (own === undefined && service !== "" && !this.#served().includes(service)) return undefined;
    if (this.#drains) return { status: "draining" };
    const whole = this.#services.get("");
    return whole?.status === "not_serving" ? whole : (own ?? { status: "serving" });
  }

  #assertServed(service: string): void {
    const served = this.#served();
    if (service === "" || served.includes(service)) return;
    const meant = nearest(service, served);
    throw new TypeError(
      `health.set: this engine does not serve "${service}"${meant === undefined ? "" : `; did you mean "${meant}"?`}`,
    );
  }

  /** The health of the whole engine, named "", of each of these services, and of services that `set` has named. */
  all(served: Iterable<string>): (ServiceHealth & { readonly service: string })[] {
    const names = new Set(["", ...served, ...this.#services.keys()]);
    return [...names].map((service) => ({ service, ...(this.of(service) ?? { status: "serving" }) }));
  }

  /** The health to report to peers. Undefined before the first `set`. */
  get told(): ToldHealth | undefined {
    if (this.#edition === 0) return undefined;
    return { edition: this.#edition, notServing: this.#notServing() };
  }

  /** The engine drains. Peers learn this by another message. */
  onDraining(): void {
    this.#drains = true;
  }

  #notServing(): [string, string][] {
    return [...this.#services].flatMap(([service, { status, reason = "" }]) =>
      status === "not_serving" ? [[service, reason] as [string, string]] : [],
    );
  }
}
