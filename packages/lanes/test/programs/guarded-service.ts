// The module of lanes with `security`: the services, and who may call them.
import { workerData } from "node:worker_threads";
import { type Identity, implement } from "cinnabar";
import type { LaneContext, LaneServices } from "cinnabar-lanes";
import { Guarded } from "./guarded.ts";

export interface GuardedData {
  /** By what clients are known: names of certificates, keys, or users of this host. */
  readonly rules: "names" | "keys" | "users";
  /** Whether the key of the pair is known: 1 or 0. */
  readonly known: SharedArrayBuffer;
}

/** Keys of clients, by the identity that they name. */
const pairs = new Map([["pair", Buffer.alloc(32, 5)]]);

function nameOf(identity: Identity | undefined): string {
  if (identity === undefined) return "nobody";
  return identity.kind === "certificate" || identity.kind === "psk" ? identity.name : identity.kind;
}

export default function services({ lane, data }: LaneContext): LaneServices {
  const { rules, known } = data as GuardedData;
  const guarded = implement(Guarded, {
    whoami: (_, call) => ({ lane, who: nameOf(call.identity) }),
    reset: (_, call) => ({ lane, who: nameOf(call.identity) }),
    pay: (_, call) => ({ lane, who: nameOf(call.identity) }),
    workerData: () => Object.keys((workerData as object | null) ?? {}),
    die: () => process.exit(3),
  });
  return {
    serve: [guarded],
    security: {
      allow: (identity, method) => method !== "guarded.v1/reset" || nameOf(identity).includes("admin"),
      authorize: (call) =>
        call.method !== "guarded.v1/pay" || call.metadata.get("authorization") === "Bearer paid",
      ...(rules === "keys" && {
        lookup: (identity) => (new Int32Array(known)[0] === 1 ? pairs.get(identity) : undefined),
      }),
      ...(rules === "names" && {
        identify: ({ dnsNames }) => (dnsNames[0] === undefined ? undefined : `dns ${dnsNames[0]}`),
      }),
    },
  };
}
