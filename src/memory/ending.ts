import type { TransferEnding } from "../bulk/movement.ts";
import type { PutOptions } from "../bulk/transfer-options.ts";
import type { IncomingCall } from "../call/incoming-call.ts";
import { RpcError } from "../errors/rpc-error.ts";
import { noticeBytes, noticeData } from "../session/notice-targets.ts";
import type { Session } from "../session/session.ts";
import { verify } from "./checksum.ts";
import { notify } from "./notice.ts";

/** What a transfer with these options does when its bytes are in place. */
export function endingOf(
  op: string,
  call: IncomingCall,
  session: Session,
  options: PutOptions | undefined,
): TransferEnding | undefined {
  const checksum = options?.checksum;
  const n = options?.notify;
  if (checksum === undefined && n === undefined) return undefined;
  return {
    notice(parts) {
      const remote = parts[0]?.remote;
      if (n === undefined || checksum !== undefined || remote === undefined) return undefined;
      return carriesNotices(session) ? noticeData(remote.loanKey, n) : undefined;
    },
    async run(parts, bytes) {
      if (checksum !== undefined) await verify(op, call, session, parts);
      if (n === undefined) return;
      const remote = parts[0]?.remote;
      // A region of no bytes has no key that its owner would know it by.
      if (remote === undefined || remote.loanKey === 0n) {
        throw new RpcError({
          code: "invalid_argument",
          message: `${op}: nobody can be told of a put into a region of no bytes`,
          origin: "local",
        });
      }
      await notify(call, session, remote, n, bytes);
    },
  };
}

/** Whether a put can tell its region's owner by itself: both sides' providers must, and they may differ. */
function carriesNotices({ port, remote }: Session): boolean {
  return port.immediateBytes === noticeBytes && remote?.immediateBytes === noticeBytes;
}
