import { isImplementation, nearest } from "cinnabar/options";
import type { AnyMethod, AnyService, CallOptions, Engine, Implementation, Schema } from "cinnabar/standard";
import { isVoid, JsonForm } from "./json/form.ts";
import { LocalServices } from "./local-services.ts";
import type { RawMethod, RemoteService, ResolvedHttpOptions } from "./options.ts";
import { type RawForm, rawForm } from "./raw-form.ts";

/** Makes a call: a promise of the output, or a stream of items. */
export type CallFunction = (input: unknown, options: CallOptions, items?: AsyncIterable<unknown>) => unknown;

/** A function of a client, of any method. */
type ClientFunction = (...args: unknown[]) => unknown;

/** A method that requests reach. */
export interface HttpMethod {
  /** `service/method`. */
  readonly name: string;
  readonly kind: AnyMethod["kind"];
  /** Whether GET calls it. */
  readonly isSafe: boolean;
  /** The verbs that call it, as the header `allow` has them. */
  readonly verbs: readonly string[];
  /** Undefined where the method takes no input. */
  readonly input: JsonForm | undefined;
  /** The items that the client sends; undefined where it sends none. */
  readonly items: JsonForm | undefined;
  /** Which fields are plain bytes; undefined where all of it is JSON. */
  readonly raw: RawForm | undefined;
  /** The deadline that the contract or the client's options set, in milliseconds. */
  readonly timeoutMs: number | undefined;
  /** The engine whose memory the method may be given. */
  engine(): Promise<Engine>;
  /** The function that calls it. Without an input it ignores the first argument. */
  function(): Promise<CallFunction>;
}

/** The methods that requests reach, by the path of their URL. */
export class Methods {
  readonly #byPath = new Map<string, HttpMethod>();
  readonly #local: LocalServices;

  /** @throws TypeError for a name that is no method, and a method that has no form in HTTP. */
  constructor({ services, allow, safe, prefix, engine }: ResolvedHttpOptions) {
    const implementations = services.filter(isImplementation);
    this.#local = new LocalServices(implementations, engine);
    const found = new Map<string, (entry: RawMethod) => HttpMethod>();
    for (const served of services) {
      const service = servedNameOf(served);
      for (const [method, contract] of Object.entries(served.service.methods)) {
        const name = `${service}/${method}`;
        if (found.has(name)) throw new TypeError(`httpHandler: services has the method "${name}" twice`);
        found.set(name, (entry) => this.#method(entry, method, contract, served, safe.includes(name)));
      }
    }
    const allowed = allow.map(({ method }) => method);
    for (const [option, names] of Object.entries({ allow: allowed, safe }))
      for (const name of names) {
        if (found.has(name)) continue;
        const near = nearest(name, [...found.keys()]);
        const hint = near === undefined ? "" : `; did you mean "${near}"?`;
        throw new TypeError(`httpHandler: ${option} names "${name}", which no service has${hint}`);
      }
    for (const name of safe)
      if (!allowed.includes(name))
        throw new TypeError(`httpHandler: safe names "${name}", which is not in allow`);
    for (const entry of allow) {
      const method = found.get(entry.method)?.(entry);
      // The name of an instance follows "#", which begins another part of a URL.
      if (method !== undefined) this.#byPath.set(`${prefix}/${entry.method.replace("#", "%23")}`, method);
    }
  }

  find(path: string): HttpMethod | undefined {
    return this.#byPath.get(path);
  }

  close(): Promise<void> {
    return this.#local.close();
  }

  #method(
    entry: RawMethod,
    method: string,
    contract: AnyMethod,
    served: Implementation | RemoteService,
    isSafe: boolean,
  ): HttpMethod {
    const { kind, input, output } = contract;
    const { method: name, body } = entry;
    const raw = rawForm(entry, contract);
    const hasItems = kind === "clientStream" || kind === "duplexStream";
    if (isSafe && (hasItems || raw?.body !== undefined))
      throw new TypeError(`httpHandler: safe names "${name}", whose body GET cannot send`);
    const form = isVoid(input) ? undefined : new JsonForm(input, "input", "input");
    const hasMemory = form?.hasMemory || new JsonForm(output, "output", "output").hasMemory;
    if (raw === undefined && hasMemory)
      throw new TypeError(
        `httpHandler: allow names "${name}", whose memory JSON cannot carry: name its field, as in { method: "${name}", body: "data" }`,
      );
    if (raw?.hasMemory && !isImplementation(served) && served.engine === undefined)
      throw new TypeError(
        `httpHandler: allow names "${name}", whose memory needs the engine of its peer: { service, peer, engine }`,
      );
    const client = this.#clientOf(served);
    let made: Promise<CallFunction> | undefined;
    const make = async (): Promise<CallFunction> => {
      const one = (await client())[method] as ClientFunction;
      if (hasItems)
        return form === undefined
          ? (_, options, items) => one(items, options)
          : (input, options, items) => one(input, items, options);
      return form === undefined ? (_, options) => one(options) : one;
    };
    return {
      ...{ name, kind, isSafe, input: form, raw },
      items: hasItems ? new JsonForm(contract.items as Schema, "input", "item") : undefined,
      verbs: [...(isSafe ? ["GET", "HEAD"] : []), "POST", ...(body === undefined ? [] : ["PUT"])],
      timeoutMs: contract.timeoutMs ?? (isImplementation(served) ? undefined : served.options?.timeoutMs),
      engine: async () => {
        if (isImplementation(served)) return this.#local.engine();
        return served.engine as Engine;
      },
      function() {
        made ??= make();
        return made;
      },
    };
  }

  #clientOf(served: Implementation | RemoteService): () => Promise<Record<string, unknown>> {
    let client: Promise<Record<string, unknown>> | undefined;
    return () => {
      client ??= isImplementation(served)
        ? this.#local.client(served)
        : Promise.resolve(served.peer.client(served.service, { inherit: false, ...served.options }));
      return client;
    };
  }
}

/** The name that a service is called by: with the instance behind "#" where it has one. */
function servedNameOf(served: Implementation | RemoteService): string {
  const { name }: AnyService = served.service;
  const instance = isImplementation(served) ? served.instance : served.options?.instance;
  return instance === undefined ? name : `${name}#${instance}`;
}
