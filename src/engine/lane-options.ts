import type { Policy, PolicyName } from "../balance/policy.ts";
import { assertOptions } from "../contract/check.ts";
import { assertKeyOf, resolvePolicyOption } from "./policy-option.ts";

/** How calls go to the lanes of a server that has several. */
export interface LaneOptions {
  /** Which lane gets a call that has no key. Default `twoChoices`. */
  readonly policy?: PolicyName | Policy;
  /**
   * Pins calls: all with the same key go to the same lane, by its number, from every client. Undefined: any lane will do. Called for each call, with its input as it was given; a call fails with
   * `internal` when it throws or gives anything but a string.
   */
  readonly keyOf?: (call: { readonly method: string; readonly input: unknown }) => string | undefined;
}

/** @throws TypeError naming the option. */
export function resolveLaneOptions(options: LaneOptions = {}): LaneOptions {
  assertOptions("connect: lanes", options, ["policy", "keyOf"]);
  const { policy = "twoChoices", keyOf } = options;
  resolvePolicyOption("connect: lanes.policy", policy);
  assertKeyOf("connect: lanes.keyOf", keyOf);
  return keyOf === undefined ? { policy } : { policy, keyOf };
}
