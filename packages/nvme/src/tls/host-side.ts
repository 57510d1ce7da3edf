import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import { integer, required } from "cinnabar/options";
import type { Ends } from "../authentication/responses.ts";
import { type TlsKey, tlsKeyField } from "./key.ts";
import { parameters } from "./parameters.ts";
import { type IdentityVersion, type PreSharedKey, preSharedKey } from "./pre-shared-key.ts";

/** TLS of a host of NVMe/TCP. */
export interface NvmeHostTls {
  /** The key of this host: what `makeTlsKey` or `nvme gen-tls-key` gives, of 32 bytes. The target has the same. */
  readonly key: string;
  /**
   * The version of the identity by which the target knows the key. Version 1 has a digest of the key beside the names.
   * `NvmeTarget` takes both; other targets may take one of them. Default: 0.
   */
  readonly identityVersion?: IdentityVersion | undefined;
}

export const hostTlsFields = { key: required(tlsKeyField), identityVersion: integer(0, 1, 0) };

/** The options of TLS, with the key parsed. */
export interface HostTls {
  readonly key: TlsKey;
  readonly identityVersion: number;
}

/** @throws RangeError where the names do not fit into an identity. */
export function hostKey(where: string, { key, identityVersion }: HostTls, ends: Ends): PreSharedKey {
  const found = preSharedKey(key, ends, identityVersion as IdentityVersion);
  if (found !== undefined) return found;
  const most = identityVersion === 0 ? 245 : 201;
  throw new RangeError(
    `${where}: tls.identityVersion ${identityVersion} has room for two names of ${most} bytes together: ${ends.hostNqn} ${ends.subsystemNqn}`,
  );
}

/** Lets TLS take over a connection. The caller ends a connection that takes too long. @throws Error with the reason. */
export async function secure(socket: Socket, { identity, psk }: PreSharedKey): Promise<TLSSocket> {
  const secured = process.getBuiltinModule("node:tls").connect({
    ...parameters,
    socket,
    pskCallback: () => ({ psk, identity }),
    // A target proves the key. No certificate of a target is trusted in its place.
    ca: [],
    rejectUnauthorized: true,
  });
  await new Promise<void>((resolve, reject) => {
    secured.once("secureConnect", resolve);
    secured.on("error", (error) => reject(new Error(`TLS failed: ${reasonOf(error)}`, { cause: error })));
    secured.once("close", () => reject(new Error("TLS failed: the target ended the connection")));
  });
  if (secured.isSessionReused()) return secured;
  secured.destroy();
  throw new Error("TLS failed: the target did not prove that it has the key");
}

/** Errors of OpenSSL have a reason without numbers of lines. */
const reasonOf = (error: Error & { readonly reason?: string }): string => error.reason ?? error.message;
