import { checkedBy, fail, list, oneOf, required, resolveNested } from "cinnabar/options";
import type { HostProof } from "../authentication/controller-side.ts";
import { dhGroupNames, type NvmeDhGroup } from "../authentication/dh-groups.ts";
import { hashNames, type NvmeHash, secretField } from "../authentication/secret.ts";

/** A host that may connect when it has proved its secret by DH-HMAC-CHAP, on every connection. */
export interface NvmeAdmittedHost {
  readonly nqn: string;
  /** What `makeSecret` or `nvme gen-dhchap-key` gives. The host has the same. */
  readonly secret: string;
  /** The secret with which the subsystem proves itself to a host that asks. Default: such a host is refused. */
  readonly controllerSecret?: string;
  /** The accepted hash functions, the best first. Default: `sha256`, `sha384`, `sha512`. */
  readonly hashes?: readonly NvmeHash[];
  /**
   * The accepted Diffie-Hellman groups, the best first. With a group, an eavesdropper cannot try secrets afterwards.
   * Default: `ffdhe2048`, `ffdhe3072`, then `null`, which means no group.
   */
  readonly dhGroups?: readonly NvmeDhGroup[];
}

/** The hosts of a subsystem, by their NQNs, with what they must prove. */
export type AdmittedHosts = ReadonlyMap<string, HostProof | undefined> | "any";

/** Large groups are for those who ask for them: an exchange in them costs twenty times as much. */
const defaultGroups: readonly NvmeDhGroup[] = ["ffdhe2048", "ffdhe3072", "null"];

const fields = {
  nqn: required(
    checkedBy((where, name, value): string =>
      typeof value === "string" ? value : fail(TypeError, where, name, "a string", value),
    ),
  ),
  secret: required(secretField),
  controllerSecret: secretField,
  hashes: list(oneOf(hashNames), 1, hashNames.length),
  dhGroups: list(oneOf(dhGroupNames), 1, dhGroupNames.length),
};

/** @throws TypeError or RangeError, which show no secret. */
export function admittedHosts(where: string, name: string, value: unknown): AdmittedHosts {
  if (value === "any") return "any";
  // The value is not shown: it may have secrets.
  if (!Array.isArray(value))
    throw new TypeError(`${where}: ${name} must be an array of NQNs and hosts with secrets, or "any"`);
  const hosts = new Map<string, HostProof | undefined>();
  for (const [index, one] of value.entries()) {
    if (typeof one === "string") {
      // A second entry does not admit a host without the proof that the first entry requires.
      if (!hosts.has(one)) hosts.set(one, undefined);
      continue;
    }
    const { nqn, ...proof } = resolveNested(where, `${name}[${index}]`, one, fields);
    const { secret, controllerSecret, hashes = hashNames, dhGroups = defaultGroups } = proof;
    hosts.set(nqn, { secret, controllerSecret, hashes, dhGroups });
  }
  return hosts;
}
