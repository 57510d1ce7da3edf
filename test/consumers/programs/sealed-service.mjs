// What sealed-server.mjs serves, and how both sides prove who they are.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { bulk, service, unary } from "cinnabar";
import { z } from "zod";

export const Vault = service("vault.v1", {
  who: unary({ output: z.string() }),
  turn: unary({ input: z.object({ from: bulk("read"), into: bulk("write") }) }),
});

/** Generous: what is tested is the package, on machines that do much else. */
export const patience = { heartbeatMs: 20_000, connectTimeoutMs: 60_000 };

/**
 * @param {string} keys the folder of `cinnabar keys`
 * @param {string} how "certificates" or "shared-key"
 * @param {string} name of this side's certificate
 */
export function securityOf(keys, how, name) {
  if (how === "shared-key") return { psk: { identity: "pair", key: readFileSync(join(keys, "pair.psk")) } };
  return { tls: tlsOf(keys, name) };
}

/** @param {string} keys @param {string} name */
export function tlsOf(keys, name) {
  const read = (/** @type {string} */ file) => readFileSync(join(keys, file));
  return { cert: read(`${name}.pem`), key: read(`${name}.key`), ca: read("ca.pem") };
}

/** @param {import("cinnabar").Identity | undefined} identity */
export const nameOf = (identity) =>
  identity?.kind === "certificate" || identity?.kind === "psk"
    ? `${identity.kind} ${identity.name}`
    : "nobody";
