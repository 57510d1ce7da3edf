import {
  type AnyService,
  type Client,
  type ClientOptions,
  Engine,
  type EngineOptions,
  type Implementation,
  type Peer,
} from "cinnabar";
import { onTestFinished } from "vitest";
import { expectAtRest, expectClosed } from "./at-rest.ts";
import type { Provider } from "./providers.ts";
import { securedOptions } from "./secured.ts";

/** A server and a client that is connected to it, closed and checked for leaks when the test ends. */
export interface Pair {
  readonly server: Engine;
  readonly client: Engine;
  readonly peer: Peer;
  readonly url: string;
  api<S extends AnyService>(service: S, options?: ClientOptions): Client<S>;
}

/** What the engines shall have beside the defaults. */
export interface PairOptions {
  readonly server?: EngineOptions;
  readonly client?: EngineOptions;
  /**
   * Work is cut off in this test, so the engines need not come to rest by themselves; the close must still let go of
   * everything.
   */
  readonly endsHard?: boolean;
}

interface Opened {
  readonly engine: Engine;
  readonly endsHard: boolean;
}

let opened: Opened[] = [];

/** The defaults of a machine with much memory, so that tests mean the same in a small guest. */
const memoryBytes = 10 * 1024 ** 3;

/** Opens an engine that is checked for leaks and closed when the test ends. */
export async function openEngine(options: EngineOptions = {}, endsHard = false): Promise<Engine> {
  const limits = { memoryBytes, ...options.limits };
  const engine = await Engine.open({ ...securedOptions, ...options, limits });
  if (opened.length === 0) onTestFinished(closeAll);
  opened.push({ engine, endsHard });
  return engine;
}

/** All are looked at before any is closed: the close of one would tidy up the others' sessions. */
async function closeAll(): Promise<void> {
  const all = opened;
  opened = [];
  try {
    for (const { engine, endsHard } of all) if (!endsHard) await expectAtRest(engine);
  } finally {
    await Promise.all(all.map(({ engine }) => engine.close()));
  }
  for (const { engine } of all) expectClosed(engine);
}

/** Opens a server and a client over `provider`. */
export async function pair(
  provider: Provider,
  services: readonly Implementation[],
  { endsHard = false, ...options }: PairOptions = {},
): Promise<Pair> {
  const listen = provider.freshUrl();
  const { heartbeatMs, connectTimeoutMs } = provider;
  const server = await openEngine({ listen, serve: services, heartbeatMs, ...options.server }, endsHard);
  const url = server.urls[0] as string;
  const client = await openEngine({ heartbeatMs, ...options.client }, endsHard);
  const peer = await client.connect(url, { timeoutMs: connectTimeoutMs });
  return { server, client, peer, url, api: (service, clientOptions) => peer.client(service, clientOptions) };
}
