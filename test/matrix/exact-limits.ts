import type { EngineLimits, LimitOptions } from "../../src/base/flow/engine-limits.ts";
import { exactLimits } from "../../src/engine/options.ts";

/** `limits` of an engine with these in force as they are, those that users cannot set included. */
export function exact({ memoryBytes, ...limits }: Partial<EngineLimits>): LimitOptions {
  return { memoryBytes, [exactLimits]: limits } as LimitOptions;
}
