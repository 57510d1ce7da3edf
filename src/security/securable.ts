import { RpcError } from "../base/errors/rpc-error.ts";
import type { Scheme } from "../fabric/libfabric/url.ts";
import type { ResolvedSecurity } from "./security-options.ts";

/** Whether sessions over the fabric begin with a TLS handshake and are sealed. */
export function isSealed(security: ResolvedSecurity | undefined, scheme: Scheme): boolean {
  if (security === undefined || scheme === "mem") return false;
  return scheme === "shm" ? security.shm === "tls" : true;
}

/** Whether bytes that are sent over the fabric stay on this host. */
export function staysOnHost(scheme: Scheme): boolean {
  return scheme === "mem" || scheme === "shm" || scheme === "net+unix";
}

/**
 * @throws RpcError `failed_precondition` when the fabric cannot be used with these options, because it proves no
 * identity.
 */
export function assertSecurable(security: ResolvedSecurity | undefined, scheme: Scheme): void {
  if (!isSealed(security, scheme) || security?.credentials !== undefined) return;
  throw new RpcError({
    code: "failed_precondition",
    message: `security has neither tls nor psk, which ${scheme} needs: only shm and mem go without`,
  });
}
