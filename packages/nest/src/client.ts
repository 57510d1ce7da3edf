import { ClientProxy, type ReadPacket, type WritePacket } from "@nestjs/microservices";
import { anything, required, resolveOptions } from "cinnabar/options";
import {
  type AnyMethod,
  type AnyService,
  type BalancedPeer,
  type ClientOptions,
  type ConnectOptions,
  Engine,
  type EngineOptions,
  type ItemStream,
  Metadata,
  type Peer,
  unary,
} from "cinnabar/standard";
import { Observable } from "rxjs";
import { CinnabarRecord } from "./call-record.ts";
import { NestMessages } from "./messages.ts";

/** The peer of a client: it gives typed clients, and says how the connection is. */
export type CinnabarPeer = Peer | BalancedPeer;

/** Options of `CinnabarClient`. */
export interface CinnabarClientOptions {
  /** The URL of the server, or those of its replicas, among which the calls are balanced. */
  readonly url: string | readonly string[];
  /** The contracts whose methods `send` and `emit` call as `service/method`. Other patterns need none. */
  readonly services?: readonly AnyService[] | undefined;
  /** The engine to call with; its owner closes it. Default: the client opens one of its own with these options. */
  readonly engine?: Engine | EngineOptions | undefined;
  /** Options of the connection to one URL. Default: those of `engine.connect`. */
  readonly connect?: ConnectOptions | undefined;
  /** Options of every call, such as `timeoutMs`, `retry` and `metadata`. Default: those of `peer.client`. */
  readonly client?: ClientOptions | undefined;
}

// What they hold is checked where it is used.
const clientFields = {
  url: required(anything<string | readonly string[]>()),
  services: anything<readonly AnyService[]>(),
  engine: anything<Engine | EngineOptions>(),
  connect: anything<ConnectOptions>(),
  client: anything<ClientOptions>(),
};

type Kind = "unary" | "serverStream" | "clientStream" | "duplexStream" | "oneWay";

/** A method that `send` or `emit` calls. */
interface Target {
  readonly kind: Kind;
  readonly takesNothing: boolean;
  readonly call: (...args: unknown[]) => unknown;
}

/** The client of patterns without a contract. */
interface Messages {
  readonly send: Target["call"];
  readonly emit: Target["call"];
}

/** The reason of calls that end because their subscriber has left. Nobody reads it: it has no stack. */
const unsubscribed = "the subscriber has left";

/** How many unused controllers a client keeps. */
const mostUnused = 1024;

/** The schema of methods without input. */
const nothing: unknown = unary().input;

/**
 * The client proxy. `send` is cold: each subscription is a call, and unsubscribing cancels it at the server, too. Where
 * speed or types matter, use a typed client of the peer, which `connect` gives.
 */
export class CinnabarClient extends ClientProxy {
  readonly #options: CinnabarClientOptions;
  readonly #targets = new Map<string, Target>();
  /** Controllers that have not fired, for later calls. Node takes longer to make one than to make a call. */
  readonly #unused: AbortController[] = [];
  /** False with middleware: it may leave a call behind that listens to the signal. A shared engine may have some, too. */
  readonly #reuses: boolean;
  #engine: Engine | undefined;
  #peer: CinnabarPeer | undefined;
  #opening: Promise<CinnabarPeer> | undefined;
  #messages: Messages | undefined;

  constructor(options: CinnabarClientOptions) {
    super();
    this.#options = resolveOptions("CinnabarClient", options, clientFields);
    const { engine, client } = this.#options;
    this.#reuses = !(engine instanceof Engine) && !engine?.middleware?.client && !client?.middleware;
  }

  /**
   * Connects, and resolves to the peer. Calls connect by themselves.
   *
   * @throws Rejects with RpcError `unavailable` when the server cannot be reached; the next call tries again.
   */
  connect(): Promise<CinnabarPeer> {
    this.#opening ??= this.#open().catch((error: unknown) => {
      this.#opening = undefined;
      throw error;
    });
    return this.#opening;
  }

  async #open(): Promise<CinnabarPeer> {
    const { url, services = [], engine, connect, client } = this.#options;
    const isOwn = !(engine instanceof Engine);
    const used = isOwn ? await Engine.open(engine) : engine;
    let peer: CinnabarPeer | undefined;
    try {
      peer = await (typeof url === "string" ? used.connect(url, connect) : used.connect(url));
      for (const service of services) {
        const functions = peer.client(service, client) as Record<string, Target["call"]>;
        for (const [name, method] of Object.entries(service.methods)) {
          const call = functions[name] as Target["call"];
          const { kind, input } = method as AnyMethod;
          this.#targets.set(`${service.name}/${name}`, { kind, takesNothing: input === nothing, call });
        }
      }
      this.#messages = peer.client(NestMessages, client) as unknown as Messages;
      if (isOwn) this.#engine = used;
      this.#peer = peer;
      this._status$.next("connected");
      return peer;
    } catch (error) {
      // The engine of another owner goes on, and would keep the connection.
      await peer?.close();
      if (isOwn) await used.close();
      throw error;
    }
  }

  /** Closes the connection; calls in flight fail. A later call connects again. */
  async close(): Promise<void> {
    const peer = await this.#opening?.catch(() => undefined);
    const engine = this.#engine;
    this.#opening = undefined;
    this.#peer = undefined;
    this.#engine = undefined;
    this.#messages = undefined;
    this.#targets.clear();
    await peer?.close();
    await engine?.close();
    if (peer !== undefined) this._status$.next("closed");
  }

  /** The peer, once connected. */
  unwrap<T = CinnabarPeer>(): T {
    if (this.#peer === undefined) throw new Error("CinnabarClient: connect() first");
    return this.#peer as T;
  }

  /** As Nest describes it. Once connected, a call goes out when it is subscribed to, without a turn of the loop before. */
  override send<Result = unknown, Input = unknown>(pattern: unknown, data: Input): Observable<Result> {
    // Without a connection, and for what Nest refuses, the way of Nest.
    if (
      this.#peer === undefined ||
      pattern === undefined ||
      pattern === null ||
      data === undefined ||
      data === null
    )
      return super.send(pattern, data);
    return new Observable<Result>((observer) => {
      // Only Nest 12 has it, with its hook for instrumentation.
      const packet = this.createPacket === undefined ? { pattern, data } : this.createPacket(pattern, data);
      return this.publish(packet, this.createObserver(observer));
    });
  }

  protected publish(packet: ReadPacket, callback: (packet: WritePacket) => void): () => void {
    const { data, options } = contentOf(packet);
    let isOver = false;
    const settle = (answer: WritePacket) => {
      if (isOver) return;
      isOver = answer.isDisposed === true || answer.err !== undefined;
      callback(answer);
    };
    const fail = (err: unknown) => settle({ err });
    let cancel: (() => void) | undefined;
    try {
      const { target, input } = this.#find(packet.pattern, data);
      const { kind, takesNothing, call } = target;
      const { input: opening, ...callOptions } = options;
      const hasItems = kind === "clientStream" || kind === "duplexStream";
      const args = takesNothing ? [] : [hasItems ? opening : input];
      if (hasItems) args.push(input);
      if (kind === "serverStream" || kind === "duplexStream") {
        const items = call(...args, callOptions) as ItemStream<unknown>;
        cancel = () => items.cancel();
        void drain(items, settle).catch(fail);
      } else cancel = this.#once(call, args, callOptions, settle);
    } catch (error) {
      fail(error);
    }
    return () => {
      if (isOver) return;
      isOver = true;
      cancel?.();
    };
  }

  /** Calls a method that answers once. Returns what cancels the call. */
  #once(
    call: Target["call"],
    args: unknown[],
    options: object,
    settle: (answer: WritePacket) => void,
  ): () => void {
    const abort = this.#unused.pop() ?? new AbortController();
    const { signal } = abort;
    const answer = call(...args, { ...options, signal }) as Promise<unknown>;
    const end = (packet: WritePacket) => {
      if (this.#reuses && !signal.aborted && this.#unused.length < mostUnused) this.#unused.push(abort);
      settle(packet);
    };
    answer.then(
      (response) => end({ response, isDisposed: true }),
      (err: unknown) => end({ err }),
    );
    return () => abort.abort(unsubscribed);
  }

  protected async dispatchEvent<T = unknown>(packet: ReadPacket): Promise<T> {
    const { data, options } = contentOf(packet);
    const { input: _, ...callOptions } = options;
    const target = this.#targets.get(this.normalizePattern(packet.pattern));
    const call = target?.call ?? this.#messages?.emit;
    if (call === undefined) throw new Error("CinnabarClient: connect() first");
    if (target === undefined)
      return (await call({ pattern: this.normalizePattern(packet.pattern), data }, callOptions)) as T;
    return (await call(...(target.takesNothing ? [] : [data]), callOptions)) as T;
  }

  #find(pattern: ReadPacket["pattern"], data: unknown): { readonly target: Target; readonly input: unknown } {
    const route = this.normalizePattern(pattern);
    const target = this.#targets.get(route);
    if (target !== undefined) return { target, input: data };
    const call = this.#messages?.send;
    if (call === undefined) throw new Error("CinnabarClient: connect() first");
    return { target: { kind: "serverStream", takesNothing: false, call }, input: { pattern: route, data } };
  }
}

async function drain(items: AsyncIterable<unknown>, settle: (answer: WritePacket) => void): Promise<void> {
  for await (const response of items) settle({ response });
  settle({ isDisposed: true });
}

/** The data of a packet with the options of its call. The packet's metadata are those of Nest's instrumentation. */
function contentOf({ data, metadata }: ReadPacket): { data: unknown; options: CinnabarRecord["options"] } {
  const record = data instanceof CinnabarRecord ? data : undefined;
  const options = record?.options ?? {};
  const content: unknown = record === undefined ? data : record.data;
  if (metadata === undefined) return { data: content, options };
  const all = new Metadata(options.metadata);
  for (const [name, value] of Object.entries(metadata)) if (!all.has(name)) all.set(name, value);
  return { data: content, options: { ...options, metadata: all } };
}
