import { closedError } from "../base/errors/rpc-error.ts";
import { parseUrl, type Scheme } from "../fabric/libfabric/url.ts";
import { canReach, openConnectingPort, openListeningPort } from "../fabric/open-port.ts";
import { layoutFor, type Port, type PortLayout } from "../fabric/port.ts";
import type { Progress } from "../fabric/progress.ts";
import { listeningUrls } from "../fabric/rdma/choose-rail.ts";
import type { VerbsChoice } from "../fabric/rdma/verbs-choice.ts";
import { locateAll, type Target } from "../fabric/target.ts";
import { dropIdleRegistrations } from "../memory/registration-cache.ts";
import { assertSecurable, type ResolvedSecurity } from "../security/security-options.ts";

/** The options of an engine for the fabrics on which it opens ports. */
interface FabricChoice {
  readonly verbs?: VerbsChoice | undefined;
  readonly security?: ResolvedSecurity | undefined;
  readonly limits?: { readonly maxConnections: number; readonly maxIdleConnectionMs: number } | undefined;
}

/** The ports of an engine: those it listens on, and those it opened to connect from. */
export class Ports {
  readonly #progress: Progress;
  readonly #fabric: FabricChoice;
  readonly #listening: Port[] = [];
  readonly #connecting: Port[] = [];
  readonly #opening = new Map<string, Promise<Port>>();
  #closed = false;

  constructor(progress: Progress, fabric: FabricChoice = {}) {
    this.#progress = progress;
    this.#fabric = fabric;
  }

  #layout(scheme: Scheme): PortLayout {
    const { maxConnections, maxIdleConnectionMs } = this.#fabric.limits ?? {};
    const layout = { ...layoutFor(scheme), secured: this.#fabric.security !== undefined };
    if (maxConnections === undefined || maxIdleConnectionMs === undefined) return layout;
    return { ...layout, maxConnections, maxIdleConnectionMs };
  }

  /** The URLs at which peers can reach the engine, with real port numbers. */
  get urls(): string[] {
    return this.#listening.map((port) => port.url);
  }

  /** The listening ports, in the order of the given URLs. */
  get listening(): readonly Port[] {
    return this.#listening;
  }

  get all(): Port[] {
    return [...this.#listening, ...this.#connecting];
  }

  /** A URL may name several addresses, see `listeningUrls`. */
  async listen(url: string): Promise<void> {
    assertSecurable(this.#fabric.security, parseUrl(url).scheme);
    for (const each of listeningUrls(url, this.#fabric.verbs)) {
      const port = await openListeningPort(each, this.#layout(parseUrl(each).scheme));
      this.#adopt(port, this.#listening);
      port.setRef(true);
    }
  }

  /** The addresses of a peer, and for each the local address from which this engine reaches it. */
  locate(url: string): Promise<readonly Target[]> {
    return locateAll(url, this.#fabric.verbs);
  }

  /** A port from which `target` can be reached: an open one, or a new one, which concurrent connects share. */
  async towards(target: Target): Promise<Port> {
    assertSecurable(this.#fabric.security, target.scheme);
    const there = this.all.find((port) => canReach(port, target));
    if (there !== undefined) return there;
    const key = `${target.scheme} ${target.from}`;
    let opening = this.#opening.get(key);
    if (opening === undefined) {
      opening = this.#open(target).finally(() => this.#opening.delete(key));
      this.#opening.set(key, opening);
    }
    return opening;
  }

  async #open(target: Target): Promise<Port> {
    const port = await openConnectingPort(target, this.#layout(target.scheme));
    this.#adopt(port, this.#connecting);
    return port;
  }

  /** The engine may have been closed while the port was being opened. */
  #adopt(port: Port, ports: Port[]): void {
    if (this.#closed) {
      port.close();
      throw closedError("the engine");
    }
    ports.push(port);
    this.#progress.add(port);
  }

  close(): void {
    this.#closed = true;
    for (const port of this.all) {
      this.#progress.remove(port);
      port.close();
      // Not before: the close releases the registrations of transfers under way.
      dropIdleRegistrations(port);
    }
    this.#listening.length = 0;
    this.#connecting.length = 0;
  }
}
