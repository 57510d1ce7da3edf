import type { RpcError } from "../errors/rpc-error.ts";
import { leastDecodedBytes } from "../flow/session-limits.ts";
import { frameKind } from "../wire/frame.ts";
import type { EndOptions } from "./context.ts";
import { closedByPeer } from "./end-reasons.ts";
import type { IncomingBodies } from "./incoming-bodies.ts";
import type { FrameHandler, SessionPart } from "./session-part.ts";

interface Ending {
  readonly port: { readonly slabView: DataView };
  readonly peerName: string;
  readonly bodies: IncomingBodies;
  end(reason: RpcError, how: EndOptions): void;
}

/** Takes a refusal or a goodbye: the peer has ended the session. */
export function lastWords(session: Ending): SessionPart["frames"] {
  const take: FrameHandler = (at, bodyBytes, flags, kind) => {
    const { port, peerName, bodies } = session;
    const word = port.slabView.getUint32(at + 12, true);
    bodies.take(at, flags, bodyBytes, neverStop, (body) => {
      const said = bodies.decode(body, undefined, leastDecodedBytes);
      // A side that says nothing of transfers under way has none: what it was granted can be used again.
      const certain = (said as { t?: unknown } | undefined)?.t === undefined;
      session.end(closedByPeer(peerName, kind, word, said), { quiet: true, certain });
    });
  };
  return { [frameKind.refuse]: take, [frameKind.goodbye]: take };
}

const neverStop = () => false;
