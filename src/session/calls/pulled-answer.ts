import type { OutgoingCall } from "../../call/outgoing-call.ts";
import { frameKind, rendezvousOwner } from "../../wire/frame.ts";
import type { SessionContext } from "../connection/context.ts";

/** Where a body that must be pulled is described, in the slab. */
interface DescribedBody {
  readonly at: number;
  readonly flags: number;
  readonly bytes: number;
}

/**
 * Pulls the body of an answer. `finish` gives the call's number and grants back, `end` takes the value if the call still
 * waits for it.
 */
export function pullAnswer(
  session: SessionContext,
  call: OutgoingCall,
  described: DescribedBody,
  finish: () => void,
  end: (value: unknown) => void,
): void {
  const pulledHead = { kind: frameKind.pulled, method: 0, callId: call.id, word: rendezvousOwner.response };
  if (call.settled) {
    // Whoever waited for what it had granted may send a request in this very slot at once: the peer must have heard
    // before that its body is not wanted.
    session.outbox.bare(pulledHead);
    finish();
    return;
  }
  call.phase = "pulling";
  call.pullingUs = call.elapsedUs(session.services.clock.now());
  session.bodies.take(
    described.at,
    described.flags,
    described.bytes,
    () => call.settled,
    (body, status) => {
      finish();
      if (call.settled) return;
      if (body === undefined) call.onFailure(session.bodies.failure(status));
      else end(session.bodies.decode(body));
    },
    pulledHead,
  );
}
