import { Places } from "../socket/connection-bounds.ts";
import type { Queue } from "./controller.ts";
import { messageFacts } from "./identify.ts";

/** Places for a few connections. */
export const somePlaces = () =>
  new Places({ maxConnections: 16, maxHandshakes: 16, handshakeTimeoutMs: 10_000 });

/** A queue without a transport. */
export const bareQueue = (abort = () => {}): Queue => ({
  facts: messageFacts,
  places: somePlaces(),
  admit: () => true,
  abort,
  settled: Promise.resolve(),
});
