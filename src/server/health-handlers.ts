import { RpcError } from "../base/errors/rpc-error.ts";
import type { Health } from "../contract/health-service.ts";
import type { HandlersOf } from "../contract/infer.ts";
import type { CallContext } from "./call-context.ts";
import type { HealthBook, ServiceHealth } from "./health-book.ts";

/** The handlers of `cinnabar.health.v1`. Loaded when somebody asks. */
export function healthHandlers(health: HealthBook): HandlersOf<typeof Health, CallContext> {
  return {
    check({ service = "" }) {
      const found = health.of(service);
      if (found !== undefined) return found;
      throw new RpcError({
        code: "not_found",
        message: `there is no service "${service}" here`,
        origin: "remote",
      });
    },
    watch: ({ service = "" }, { signal }) => new Changes(health, service, signal),
  };
}

/** What `watch` says. */
type Watched = ServiceHealth | { readonly status: "unknown" };

/**
 * The health of one service: now, and each time that it has changed. A slow reader misses what was changed back
 * meanwhile. No generator: one that waits cannot be ended.
 */
class Changes implements AsyncIterable<Watched>, AsyncIterator<Watched, undefined> {
  readonly #health: HealthBook;
  readonly #service: string;
  readonly #stop: () => void;
  #last: Watched | undefined;
  #isOver = false;
  #onChanged: (() => void) | undefined;

  constructor(health: HealthBook, service: string, signal: AbortSignal) {
    this.#health = health;
    this.#service = service;
    this.#stop = health.watch(() => this.#onChanged?.());
    if (signal.aborted) this.#end();
    else signal.addEventListener("abort", () => this.#end(), { once: true });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<IteratorResult<Watched, undefined>> {
    for (;;) {
      if (this.#isOver) return { done: true, value: undefined };
      const now: Watched = this.#health.of(this.#service) ?? { status: "unknown" };
      if (now.status !== this.#last?.status || reasonOf(now) !== reasonOf(this.#last)) {
        this.#last = now;
        return { done: false, value: now };
      }
      await new Promise<void>((resolve) => {
        this.#onChanged = resolve;
      });
      this.#onChanged = undefined;
    }
  }

  async return(): Promise<IteratorResult<Watched, undefined>> {
    this.#end();
    return { done: true, value: undefined };
  }

  #end(): void {
    this.#isOver = true;
    this.#stop();
    this.#onChanged?.();
  }
}

const reasonOf = (watched: Watched | undefined): string | undefined =>
  watched !== undefined && "reason" in watched ? watched.reason : undefined;

export { Health } from "../contract/health-service.ts";
