import { spawn, spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import type { Figure } from "../gates/figure.ts";
import { hasEtcd } from "./partition/etcd-server.ts";

/**
 * Where a gate runs: on this host; in a guest with a kernel of its own, which can lose packets; or in namespaces of
 * users and networks.
 */
export type Place = "host" | "guest" | "namespace";

const guest = fileURLToPath(new URL("../../../../../test/rdma/guest", import.meta.url));
const main = fileURLToPath(new URL("./main.js", import.meta.url));

/** Set where a program has a network of its own, which it may change. */
export const ownNetwork = "CINNABAR_OWN_NETWORK";

/** Why there is no such place; undefined where there is. */
export function lackOf(place: Place): string | undefined {
  if (place === "host" || process.env[ownNetwork] === "1") return undefined;
  if (place === "guest" && spawnSync(guest, ["--ready"]).status !== 0)
    return "the guest has no kernel yet; `test/rdma/guest --prepare` builds it";
  if (place === "namespace" && spawnSync("unshare", ["-Urn", "ip", "link"]).status !== 0)
    return "this kernel lets users make no namespaces, or there is no `ip`";
  if (place === "namespace" && !hasEtcd) return "there is no etcd; `npm run setup` gets it";
  return undefined;
}

/** Runs a gate by another process of this program, there. Rejects with an Error where that fails. */
export async function runThere(place: Place, id: string, isShort: boolean): Promise<Figure[]> {
  const program = [
    ...["env", `${ownNetwork}=1`, process.execPath, main, "--json"],
    ...[...(isShort ? ["--short"] : []), id],
  ];
  const start = place === "guest" ? [guest, "--mem", "3072", "--timeout", "900", "--"] : ["unshare", "-Urn"];
  const [command = "", ...rest] = [...start, ...program];
  const child = spawn(command, rest, { stdio: ["ignore", "pipe", "inherit"] });
  let printed = "";
  child.stdout.on("data", (text) => {
    printed += text;
  });
  const status = await new Promise<number | null>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", resolve);
  });
  if (status === 0) return JSON.parse(printed) as Figure[];
  throw new Error(`${command} ended with ${status}\n${printed}`);
}
