import type { RpcError } from "../../base/errors/rpc-error.ts";
import { frameKinds } from "../../wire/frame.ts";
import type { Greeting } from "../../wire/handshake.ts";
import type { Teardown } from "../liveness/teardown.ts";
import type { SessionContext } from "./context.ts";

/**
 * Takes the frame of one kind whose header lies at `at` of the port's slab; its body follows. Handlers read the
 * header's other fields themselves: numbers beyond 2^31 as arguments would cost memory at each call.
 */
export type FrameHandler = (at: number, bodyBytes: number, flags: number, kind: number) => void;

/** A kind of traffic on a session, which registers the frames it takes: the calls are one. Made once a session. */
export interface SessionPart {
  /** By kind. No two parts take the same. */
  readonly frames: Readonly<Record<number, FrameHandler>>;
  /** How much is open, such that the peer's death would matter. */
  readonly openWork: number;
  /** Both sides have greeted each other: frames flow. */
  onOpen?(remote: Greeting): void;
  /** The outbox takes requests again, after it did not for a while. */
  onRoom?(): void;
  /** The peer takes no new calls. */
  onDraining?(): void;
  /** The peer has taken all that was sent before the ping with this word. */
  onEcho?(word: number): void;
  /** The peer may have `credits` requests in flight from now on. */
  grantCredits?(credits: number): void;
  /**
   * The session has ended: settles what is open, and hands over what the peer may still touch and what still touches
   * the peer's memory.
   */
  end(reason: RpcError, teardown: Teardown): void;
}

/** Makes a part for a new session. */
export type SessionPartFactory = (session: SessionContext) => SessionPart;

/**
 * The handlers of several parts in one table, by kind; `unknown` takes the kinds that none of them does. Throws when
 * two take the same.
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
