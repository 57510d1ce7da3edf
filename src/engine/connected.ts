import type { Client } from "../client/client.ts";
import type { Peer } from "../connect/peer.ts";
import type { AnyService } from "../contract/service.ts";
import type { Implementation } from "../server/implement.ts";
import { Engine } from "./engine.ts";

/** Two engines of one thread: a server, and a client that is connected to it. The owner closes them. */
export interface Connected<S extends AnyService> extends AsyncDisposable {
  /** A client of the service. */
  readonly client: Client<S>;
  /** The connection behind `client`, for clients of other services or with other options. */
  readonly peer: Peer;
  /** The engine that listens. Close it to test the loss of a server. */
  readonly server: Engine;
  /** The engine that connected. */
  readonly engine: Engine;
  /** Closes both engines. `await using` does the same. */
  close(): Promise<void>;
}

/** The number of servers of this thread so far. Names of `mem` belong to the thread, and its test files share them. */
let servers = 0;

/**
 * Serves a service over `mem://` and connects a client to it, for tests. Values are encoded and validated, and limits
 * hold, as over the other transports. It needs no native code.
 *
 * @param contract The service that `client` calls.
 * @param implementation The implementation of the service, made by `implement`; or several, as in `serve` of an engine.
 * @throws As `Engine.open` and `engine.connect`; nothing stays open then.
 *
 * @example
 * import { implement, service, unary } from "cinnabar";
 * import { connected } from "cinnabar/testing";
 * import { z } from "zod";
 *
 * const Prices = service("prices.v1", {
 *   of: unary({ input: z.object({ item: z.string() }), output: z.object({ cents: z.int() }) }),
 * });
 * await using pair = await connected(Prices, implement(Prices, { of: () => ({ cents: 250 }) }));
 * console.log(await pair.client.of({ item: "tea" }));
 */
export async function connected<S extends AnyService>(
  contract: S,
  implementation: Implementation | readonly Implementation[],
): Promise<Connected<S>> {
  const serve = Array.isArray(implementation) ? implementation : [implementation];
  const server = await Engine.open({ listen: `mem://connected-${servers++}`, serve });
  const engine = await Engine.open();
  const close = async () => {
    await engine.close();
    await server.close();
  };
  try {
    const peer = await engine.connect(server.urls[0] as string);
    return { client: peer.client(contract), peer, server, engine, close, [Symbol.asyncDispose]: close };
  } catch (error) {
    await close();
    throw error;
  }
}
