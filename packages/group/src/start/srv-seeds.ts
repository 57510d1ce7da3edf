import type { SrvRecord } from "node:dns";
import { resolveSrv } from "node:dns/promises";
import { callback, type FieldsOf, oneOf, resolveOptions } from "cinnabar/options";
import { RpcError } from "cinnabar/standard";

/** The options of `srvSeeds`. */
export interface SrvSeedsOptions {
  /** The scheme of the URLs. Default: `tcp`. */
  readonly scheme?: "tcp" | "verbs" | "net" | undefined;
  /** Asks for the records. Default: `resolveSrv` of `node:dns/promises`. */
  readonly resolve?:
    | ((name: string) => Promise<readonly Pick<SrvRecord, "name" | "port" | "priority">[]>)
    | undefined;
}

const fields = {
  scheme: oneOf(["tcp", "verbs", "net"], "tcp"),
  resolve: callback<NonNullable<SrvSeedsOptions["resolve"]>>(resolveSrv),
} satisfies FieldsOf<SrvSeedsOptions>;

/**
 * URLs of members by the SRV records of a name, in one order everywhere: by priority, then by host and port. Weights do
 * not count: all processes must agree on the first seed, since that one makes the group.
 *
 * @throws TypeError for bad options. RpcError `unavailable` when the name has no records, or cannot be resolved
 *
 * @example
 * const authority = coordinatorAuthority({ seeds: () => srvSeeds("_cinnabar._tcp.store.example.com") });
 */
export async function srvSeeds(name: string, options: SrvSeedsOptions = {}): Promise<string[]> {
  const { scheme, resolve } = resolveOptions("srvSeeds", options, fields);
  const records = await resolve(name).catch((cause: unknown) => {
    throw unavailable(name, cause instanceof Error ? cause.message : String(cause), cause);
  });
  // RFC 2782: a target of "." says that the service is not there.
  const found = records.map((record) => ({ ...record, host: record.name.replace(/\.$/, "") }));
  const hosts = found.filter(({ host }) => host !== "");
  if (hosts.length === 0) throw unavailable(name, "it has no SRV records");
  hosts.sort((a, b) => a.priority - b.priority || order(a.host, b.host) || a.port - b.port);
  return hosts.map(({ host, port }) => `${scheme}://${host}:${port}`);
}

/** The same in every locale. */
const order = (one: string, other: string): number => (one < other ? -1 : one > other ? 1 : 0);

function unavailable(name: string, why: string, cause?: unknown): RpcError {
  return new RpcError({ code: "unavailable", message: `srvSeeds: ${name}: ${why}`, cause });
}
