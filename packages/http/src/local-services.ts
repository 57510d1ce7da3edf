import type { AnyService, Peer } from "cinnabar/standard";
import { type Client, Engine, type EngineOptions, type Implementation } from "cinnabar/standard";

/**
 * Runs implementations in an engine of this thread, and calls them through it. So a call by HTTP has the validation,
 * middleware, admission, deadline and counters of any other call.
 */
export class LocalServices {
  readonly #serve: readonly Implementation[];
  readonly #options: Omit<EngineOptions, "listen" | "serve">;
  #opening: Promise<{ readonly engine: Engine; readonly peer: Peer }> | undefined;
  #isClosed = false;

  constructor(serve: readonly Implementation[], options: Omit<EngineOptions, "listen" | "serve">) {
    this.#serve = serve;
    this.#options = options;
  }

  /** A client of one of the implementations. The engine opens with the first. */
  async client({ service, instance }: Implementation): Promise<Client<AnyService>> {
    this.#opening ??= this.#open();
    const { peer } = await this.#opening;
    return peer.client(service, { inherit: false, instance });
  }

  /** The engine, which opens with the first use. */
  async engine(): Promise<Engine> {
    this.#opening ??= this.#open();
    return (await this.#opening).engine;
  }

  async #open() {
    const url = `mem://cinnabar-http-${crypto.randomUUID()}`;
    const engine = await Engine.open({ ...this.#options, listen: url, serve: this.#serve });
    if (this.#isClosed) await engine.close();
    return { engine, peer: engine.lazyPeer(url) };
  }

  /** Lets the open calls end, within the bounds of `engine.drain`, and closes the engine. */
  async close(): Promise<void> {
    this.#isClosed = true;
    const opened = await this.#opening?.catch(() => undefined);
    await opened?.engine.drain();
  }
}
