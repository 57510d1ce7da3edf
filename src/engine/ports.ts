import { canReach, openConnectingPort, openListeningPort } from "../fabric/open-port.ts";
import type { Port } from "../fabric/port.ts";
import { defaultLayout } from "../fabric/port-layout.ts";
import type { Progress } from "../fabric/progress.ts";
import { parseUrl } from "../fabric/url.ts";

/** The ports of an engine: those it listens on, and those it opened to connect from. */
export class Ports {
  readonly #progress: Progress;
  readonly #listening: Port[] = [];
  readonly #connecting: Port[] = [];
  /** Ports are opened one after another, so that two connects at once share one. */
  #opening: Promise<unknown> = Promise.resolve();

  constructor(progress: Progress) {
    this.#progress = progress;
  }

  /** Where peers can reach the engine, with real port numbers. */
  get urls(): string[] {
    return this.#listening.map((port) => port.url);
  }

  get all(): Port[] {
    return [...this.#listening, ...this.#connecting];
  }

  async listen(url: string): Promise<void> {
    const port = await openListeningPort(url, defaultLayout);
    port.setRef(true);
    this.#listening.push(port);
    this.#progress.add(port);
  }

  /** A port from which `url` can be reached. */
  towards(url: string): Promise<Port> {
    parseUrl(url);
    const found = this.#opening.then(() => this.#find(url));
    this.#opening = found.catch(() => undefined);
    return found;
  }

  async #find(url: string): Promise<Port> {
    for (const port of this.all) if (await canReach(port, url)) return port;
    const port = await openConnectingPort(url, defaultLayout);
    this.#connecting.push(port);
    this.#progress.add(port);
    return port;
  }

  close(): void {
    for (const port of this.all) {
      this.#progress.remove(port);
      port.close();
    }
    this.#listening.length = 0;
    this.#connecting.length = 0;
  }
}
