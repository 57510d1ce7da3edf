import { RpcError } from "../base/errors/rpc-error.ts";
import { putNotificationBytes, putNotificationData } from "../memory/put-notification.ts";
import type { PeerLink } from "./control/peer-link.ts";
import type { TransferScope } from "./control/transfer-route.ts";
import { notify } from "./put-notification.ts";
import type { CompletionAction } from "./transfer-operation.ts";
import type { PutOptions } from "./transfer-options.ts";
import { verify } from "./verify-checksum.ts";

/** What a transfer with these options does when its bytes are in place; undefined when nothing is to be done. */
export function completionActionOf(
  op: string,
  scope: TransferScope,
  session: PeerLink,
  options: PutOptions | undefined,
): CompletionAction | undefined {
  const checksum = options?.checksum;
  const n = options?.notify;
  if (checksum === undefined && n === undefined) return undefined;
  return {
    notification(parts) {
      const remote = parts[0]?.remote;
      if (n === undefined || checksum !== undefined || remote === undefined) return undefined;
      return carriesPutNotifications(session) ? putNotificationData(remote.grantKey, n) : undefined;
    },
    async run(parts, bytes) {
      if (checksum !== undefined) await verify(op, scope, session, parts);
      if (n === undefined) return;
      const remote = parts[0]?.remote;
      // A region of no bytes has no key, so its owner could not find it.
      if (remote === undefined || remote.grantKey === 0n) {
        throw new RpcError({
          code: "invalid_argument",
          message: `${op}: the option notify needs a region of at least 1 byte`,
          origin: "local",
        });
      }
      await notify(scope, session, remote, n, bytes);
    },
  };
}

/** Whether a put can carry its notification: the providers of both sides must support it, and they may differ. */
function carriesPutNotifications({ port, peerImmediateBytes }: PeerLink): boolean {
  return port.immediateBytes === putNotificationBytes && peerImmediateBytes === putNotificationBytes;
}
