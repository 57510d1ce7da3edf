import type { RpcError } from "../../base/errors/rpc-error.ts";
import { frameKind } from "../../wire/frame.ts";
import type { Handshake } from "./handshake.ts";
import { type Body, type IncomingBodies, sessionPulled } from "./incoming-bodies.ts";
import type { Outbox } from "./outbox.ts";
import { type RendezvousOffers, sessionBody } from "./rendezvous.ts";
import type { FrameHandler, SessionPart } from "./session-part.ts";

/** A session as the frames about its opening see it. */
interface Greeted {
  readonly port: { readonly slabView: DataView };
  readonly outbox: Outbox;
  readonly bodies: IncomingBodies;
  readonly offers: RendezvousOffers;
  fault(text: string): void;
  end(reason: RpcError): void;
}

/** A greeting or a service table. Without its body there is no session, though the peer has done nothing wrong. */
function takeGreeting(session: Greeted, handshake: Handshake): FrameHandler {
  return (at, bodyBytes, flags, kind) => {
    const fault = handshake.faultOf(kind, session.port.slabView.getUint32(at + 12, true));
    if (fault !== "") return session.fault(fault);
    const { bodies } = session;
    const onBody = (body: Body | undefined, status: number): void => {
      if (body === undefined) return session.end(bodies.failure(status));
      bodies.greeting(body, (value) => handshake.onBody(kind, value));
    };
    bodies.take({ at, flags, bodyBytes, pulledHead: sessionPulled, stop: neverStop, onBody });
  };
}

/** Takes a welcome. */
export function welcomeFrames(session: Greeted, handshake: Handshake): SessionPart["frames"] {
  return { [frameKind.welcome]: takeGreeting(session, handshake) };
}

/** Takes what follows a welcome: the greeting or the service table of the side that connects, and what is read of bodies. */
export function greetingFrames(session: Greeted, handshake: Handshake): SessionPart["frames"] {
  return {
    [frameKind.services]: takeGreeting(session, handshake),
    // The peer has pulled a body, or does not want it.
    [frameKind.pulled]: (at) => {
      const view = session.port.slabView;
      const fault = session.offers.onPulled(view.getUint32(at + 4, true), view.getUint32(at + 12, true));
      if (fault !== "") session.fault(fault);
      else if (!session.offers.has(sessionBody)) session.outbox.resume();
    },
    // The peer is reading bodies.
    [frameKind.pulling]: (at) => {
      const fault = session.offers.onPulling(session.port.slabView.getUint32(at + 12, true));
      if (fault !== "") session.fault(fault);
    },
  };
}

const neverStop = () => false;
