import type { Region } from "../bulk/region.ts";
import type { OutgoingCall } from "../call/outgoing-call.ts";
import { registerStreamClass } from "../wire/codec.ts";
import type { Session } from "./session.ts";

/** A byte stream that a request carries. What happens in it is the business of a layer above. */
export abstract class LentStream {
  /**
   * The request of `call` is being encoded and takes the stream along. Returns its descriptor; `lend` lends the region and gives the region's.
   *
   * @throws RpcError when it cannot go.
   */
  abstract board(session: Session, call: OutgoingCall, lend: (region: Region) => Uint8Array): Uint8Array;
}

registerStreamClass(LentStream);
