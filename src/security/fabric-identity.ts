import type { Port } from "../fabric/port.ts";
import { type Identity, identityOfProcess, localIdentity } from "./identity.ts";

/** Who is behind an address, where no handshake is needed to know: over `mem` this process, over `shm` by the kernel. */
export function identityByFabric(
  port: Pick<Port, "scheme" | "processOf">,
  address: number,
): Identity | undefined {
  if (port.scheme === "mem") return localIdentity;
  const process = port.processOf(address);
  return process === undefined ? undefined : identityOfProcess(process.uid, process.gid, process.pid);
}
