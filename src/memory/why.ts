import type { Access } from "../bulk/region-kind.ts";
import { asCount, builtinMethod, isUint64 } from "./builtin-method.ts";
import { lentTo } from "./lent.ts";

interface WhyInput {
  readonly key: bigint;
  readonly needed: Access;
  readonly offset: number;
  readonly bytes: number;
}

/**
 * Serves `why`: whether a transfer that the fabric has refused without a reason was one the asker had the right to. The answer is nothing when it
 * was, and otherwise the error that it should have ended with.
 */
export const whyMethod = builtinMethod<WhyInput>(
  "why",
  ([key, needed, from, length]) => {
    const offset = asCount(from);
    const bytes = asCount(length);
    const fits =
      isUint64(key) &&
      (needed === "read" || needed === "write") &&
      offset !== undefined &&
      bytes !== undefined;
    return fits ? { key, needed, offset, bytes } : undefined;
  },
  ({ key, needed, offset, bytes }, call, session) => {
    lentTo(session, key, needed, offset, bytes);
    call.settle({ value: undefined });
  },
);
