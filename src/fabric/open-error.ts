import { fabricError, fabricErrorName, noDescriptors } from "../base/errors/fabric-error.ts";
import type { RpcError } from "../base/errors/rpc-error.ts";
import type { NativeError } from "./libfabric/addon.ts";
import { type FabricUrl, formatHostUrl, hasHosts, isNodeScheme } from "./libfabric/url.ts";

/** Why a port could not be opened, and the user's remedy. */
export function openError(error: NativeError, url: FabricUrl): RpcError {
  const { scheme, host, port, name } = url;
  const where =
    hasHosts(scheme) || isNodeScheme(scheme)
      ? formatHostUrl(scheme, host || "*", port)
      : `${scheme}://${name}`;
  const symbol = fabricErrorName(error.code);
  const why = (error.op.startsWith("fi_") && openReasons[symbol]) || error.message;
  const known = error.code === 0 || symbol.startsWith("errno ") ? error.name : symbol;
  return fabricError({
    ...error,
    name: known,
    provider: url.scheme,
    message: `cannot open ${where}: ${why}`,
  });
}

/** The meaning of the system's errors for a user who opens a port. By the error's name. */
export const openReasons: Readonly<Record<string, string>> = {
  EACCES: "this user may not listen there; ports below 1024 need a right",
  EADDRINUSE:
    "the address is in use. Stop who listens there, or choose another port. Cluster workers and threads cannot share " +
    "a port: give each its own, or use openLanes",
  EADDRNOTAVAIL:
    "this machine does not have the address; listen at one of its own, or at 0.0.0.0 or [::] for all of them",
  ...noDescriptors,
};
