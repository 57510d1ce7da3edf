import type { Priority } from "../base/flow/priority.ts";
import type { MetadataListener } from "../call/outgoing-call.ts";
import { completeWindow } from "../contract/method.ts";
import type { ItemWindow } from "../session/streams/item-credits.ts";
import type { ItemDirections } from "../transfer/control/control-method.ts";
import type { StreamCallOptions } from "./call-options.ts";
import type { ClientMethod } from "./client-method.ts";
import type { RetryPolicy } from "./retry-policy.ts";

/** What a stream is bound by. Streams that are made without options share those of their method. */
export interface StreamTerms {
  readonly directions: ItemDirections;
  readonly window: ItemWindow;
  readonly priority: Priority;
  readonly failsWhenFull: boolean;
  /** `Infinity` where there is no idle bound. */
  readonly idleTimeoutMs: number;
  readonly policy: RetryPolicy | undefined;
  readonly onMetadata: MetadataListener | undefined;
  readonly onHeaders: MetadataListener | undefined;
}

/** The terms of a method, with what `options` say instead. */
export function streamTerms(
  method: ClientMethod,
  directions: ItemDirections,
  { window, idleTimeoutMs, retry, priority, whenFull, onMetadata, onHeaders }: StreamCallOptions = {},
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
    onHeaders,
  };
}
