import { RpcError } from "../base/errors/rpc-error.ts";
import type { Health } from "../contract/health-service.ts";
import type { HandlersOf } from "../contract/infer.ts";
import type { CallContext } from "./call-context.ts";
import type { HealthBook, ServiceHealth } from "./health-book.ts";
import { WatchStream } from "./watch-stream.ts";

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
 * meanwhile.
 */
class Changes extends WatchStream<Watched> {
  readonly #health: HealthBook;
  readonly #service: string;
  #last: Watched | undefined;

  constructor(health: HealthBook, service: string, signal: AbortSignal) {
    super(signal);
    this.#health = health;
    this.#service = service;
  }

  protected override start(): () => void {
    return this.#health.watch(() => this.wake());
  }

  protected override take(): Watched | undefined {
    const now: Watched = this.#health.of(this.#service) ?? { status: "unknown" };
    if (now.status === this.#last?.status && reasonOf(now) === reasonOf(this.#last)) return undefined;
    this.#last = now;
    return now;
  }
}

const reasonOf = (watched: Watched | undefined): string | undefined =>
  watched !== undefined && "reason" in watched ? watched.reason : undefined;

export { Health } from "../contract/health-service.ts";
