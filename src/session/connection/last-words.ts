import type { RpcError } from "../../base/errors/rpc-error.ts";
import { leastDecodedBytes } from "../../base/flow/engine-limits.ts";
import { errorWord } from "../../wire/fault.ts";
import { frameKind } from "../../wire/frame.ts";
import { closedByPeer, goodbyeBody } from "../opening/end-reasons.ts";
import type { EndOptions } from "./context.ts";
import type { Body, IncomingBodies } from "./incoming-bodies.ts";
import type { FrameHandler, SessionPart } from "./session-part.ts";

interface Ending {
  readonly port: { readonly slabView: DataView };
  readonly peerName: string;
  readonly bodies: IncomingBodies;
  end(reason: RpcError, how: EndOptions): void;
}

interface Speaker {
  readonly outbox: { dropHeld(): void; close(): void };
  say(kind: number, value: unknown, word: number): void;
  flush(): void;
}

/** Takes a refusal or a goodbye: the peer has ended the session. */
export function lastWords(session: Ending): SessionPart["frames"] {
  const take: FrameHandler = (at, bodyBytes, flags, kind) => {
    const { port, peerName, bodies } = session;
    const word = port.slabView.getUint32(at + 12, true);
    const onBody = (body: Body | undefined): void => {
      const said = bodies.decode(body, undefined, leastDecodedBytes);
      // A side that says nothing of transfers under way has none: what it was granted can be used again.
      const certain = (said as { t?: unknown } | undefined)?.t === undefined;
      session.end(closedByPeer(peerName, kind, word, said), { quiet: true, certain });
    };
    bodies.take({ at, flags, bodyBytes, stop: neverStop, onBody });
  };
  return { [frameKind.refuse]: take, [frameKind.goodbye]: take };
}

/** Says why this side ends the session, and nothing after it. `touching`: transfers of this side may still use the peer's memory. */
export function sayGoodbye(session: Speaker, reason: RpcError, touching: boolean): void {
  const body = { ...goodbyeBody(reason), ...(touching && { t: true }) };
  session.outbox.dropHeld();
  session.say(frameKind.goodbye, body, errorWord(reason));
  session.flush();
  session.outbox.close();
}

const neverStop = () => false;
