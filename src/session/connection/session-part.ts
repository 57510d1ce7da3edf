import type { RpcError } from "../../base/errors/rpc-error.ts";
import { frameKinds } from "../../wire/frame.ts";
import type { Greeting } from "../../wire/handshake.ts";
import type { Teardown } from "../liveness/teardown.ts";

/**
 * Takes the frame of one kind whose header lies at `at` of the port's slab; its body follows. Handlers read the
 * header's other fields themselves: numbers beyond 2^31 as arguments would cost memory at each call.
 */
export type FrameHandler = (at: number, bodyBytes: number, flags: number, kind: number) => void;

/** A kind of traffic on a session, such as the calls, with the frames that it takes. Made once for each session. */
export interface SessionPart {
  /** Handlers by kind. No two parts take the same kind. */
  readonly frames: Readonly<Record<number, FrameHandler>>;
  /** The number of open operations for which the peer's death matters. */
  readonly openWork: number;
  /** Both sides have greeted each other: frames flow. */
  onOpen?(remote: Greeting): void;
  /** The outbox takes requests again, after it was full. */
  onRoom?(): void;
  /** The peer takes no new calls. */
  onDraining?(): void;
  /** The peer has taken all frames before the ping with this word. */
  onEcho?(word: number): void;
  /** The peer may have `credits` requests in flight from now on. */
  grantCredits?(credits: number): void;
  /**
   * The session has ended: settles open work. Hands over grants that the peer may still touch, and transfers that still
   * touch the peer's memory.
   */
  end(reason: RpcError, teardown: Teardown): void;
}

/**
 * The handlers of several parts in one table, by kind. `unknown` takes the remaining kinds. Throws when two parts take
 * the same kind.
 */
export function frameTable(
  parts: readonly Pick<SessionPart, "frames">[],
  unknown: FrameHandler,
): readonly FrameHandler[] {
  const table = new Array<FrameHandler>(frameKinds).fill(unknown);
  for (const { frames } of parts) {
    for (const [kind, handler] of Object.entries(frames)) {
      if (table[Number(kind)] !== unknown)
        throw new Error(`no two parts of a session can take frame kind ${kind}`);
      table[Number(kind)] = handler;
    }
  }
  return table;
}
