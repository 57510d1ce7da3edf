import { type PullType, pull } from "../bulk/pull.ts";
import type { RemoteRegion } from "../bulk/remote-region.ts";
import { type Transfer, transfer, transferParts } from "../bulk/transfer.ts";
import type {
  LocalMemory,
  PullOptions,
  PutOptions,
  TransferControl,
  TransferPart,
} from "../bulk/transfer-options.ts";
import type { IncomingCall } from "../call/incoming-call.ts";
import type { Session } from "../session/session.ts";
import { endingOf } from "./ending.ts";

/** `get` and `put` on a region that came with a call, as its handler or its borrower asks for them. */
export function move(
  op: "get" | "put",
  call: IncomingCall,
  session: Session,
  remote: RemoteRegion,
  local: LocalMemory,
  options: PutOptions | undefined,
): Transfer {
  return transfer(op, session, call, remote, local, options, endingOf(op, call, session, options));
}

/** `getv` and `putv`. */
export function moveParts(
  op: "get" | "put",
  call: IncomingCall,
  session: Session,
  parts: readonly TransferPart[],
  options: TransferControl | undefined,
): Transfer {
  return transferParts(op, session, call, parts, options, endingOf(`${op}v`, call, session, options));
}

/** `pull`: into memory of its own. */
export function movePulled<T extends ArrayBufferView>(
  call: IncomingCall,
  session: Session,
  remote: RemoteRegion,
  Type: PullType<T>,
  options: PullOptions | undefined,
): Promise<T> {
  return pull(session, call, remote, Type, options, endingOf("pull", call, session, options));
}
