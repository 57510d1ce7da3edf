import { completeWindow } from "../contract/method.ts";
import type { ItemWindow } from "../session/streams/item-credits.ts";
import type { ItemDirections } from "../transfer/control/control-method.ts";
import type { CallTerms } from "./attempted-call.ts";
import type { StreamCallOptions } from "./call-options.ts";
import type { ClientMethod } from "./client-method.ts";

/** What a stream is bound by. Streams that are made without options share those of their method. */
export interface StreamTerms extends CallTerms {
  readonly directions: ItemDirections;
  readonly window: ItemWindow;
  /** `Infinity` where there is no idle bound. */
  readonly idleTimeoutMs: number;
}

/** The terms of a method, with what `options` say instead. */
export function streamTerms(
  method: ClientMethod,
  directions: ItemDirections,
  { window, idleTimeoutMs, retry, priority, whenFull, onMetadata }: StreamCallOptions = {},
): StreamTerms {
  return {
    directions,
    window: window === undefined ? method.window : completeWindow(window, method.window),
    priority: priority ?? method.priority,
    failsWhenFull: (whenFull ?? method.whenFull) === "fail",
    idleTimeoutMs:
      idleTimeoutMs === false ? Number.POSITIVE_INFINITY : (idleTimeoutMs ?? method.idleTimeoutMs),
    policy: retry === undefined ? method.policy : method.policyOf({ retry }),
    onMetadata,
  };
}
