import type { EngineLimits, LimitOptions } from "../../src/base/flow/engine-limits.ts";
import { exactLimits } from "../../src/engine/options.ts";

/**
 * `limits` of an engine with these in force as they are, those that users cannot set included. Without `memoryBytes` an
 * engine of the matrix keeps that of the matrix.
 */
export function exact({ memoryBytes, ...limits }: Partial<EngineLimits>): LimitOptions {
  return { ...(memoryBytes !== undefined && { memoryBytes }), [exactLimits]: limits } as LimitOptions;
}
