import { type Policy, type PolicyName, policies } from "../balance/policy.ts";

/** @throws TypeError naming `where`. */
export function resolvePolicyOption(where: string, policy: PolicyName | Policy): Policy {
  if (typeof policy === "object" && policy !== null && typeof policy.pick === "function") return policy;
  if (typeof policy === "string" && Object.hasOwn(policies, policy)) return policies[policy]();
  throw new TypeError(
    `${where} must be one of ${Object.keys(policies).join(", ")}, or an object with pick()`,
  );
}

/** @throws TypeError naming `where`. */
export function assertKeyOf(where: string, keyOf: unknown): void {
  if (keyOf !== undefined && typeof keyOf !== "function") throw new TypeError(`${where} must be a function`);
}
