import { isImplementation, nearest } from "cinnabar/options";
import type { AnyMethod, AnyService, CallOptions, Implementation } from "cinnabar/standard";
import { isVoid, JsonForm } from "./json/form.ts";
import { LocalServices } from "./local-services.ts";
import type { RemoteService, ResolvedHttpOptions } from "./options.ts";

/** Makes a call: a promise of the output, or a stream of items. */
export type CallFunction = (input: unknown, options: CallOptions) => unknown;

/** A function of a client, of any method. */
type ClientFunction = (...args: unknown[]) => unknown;

/** A method that requests reach. */
export interface HttpMethod {
  /** `service/method`. */
  readonly name: string;
  readonly kind: AnyMethod["kind"];
  /** Whether GET calls it. */
  readonly isSafe: boolean;
  /** Undefined where the method takes no input. */
  readonly input: JsonForm | undefined;
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
    const found = new Map<string, () => HttpMethod>();
    for (const served of services) {
      const service = servedNameOf(served);
      for (const [method, contract] of Object.entries(served.service.methods)) {
        const name = `${service}/${method}`;
        if (found.has(name)) throw new TypeError(`httpHandler: services has the method "${name}" twice`);
        found.set(name, () => this.#method(name, method, contract, served, safe.includes(name)));
      }
    }
    for (const [option, names] of Object.entries({ allow, safe }))
      for (const name of names) {
        if (found.has(name)) continue;
        const near = nearest(name, [...found.keys()]);
        const hint = near === undefined ? "" : `; did you mean "${near}"?`;
        throw new TypeError(`httpHandler: ${option} names "${name}", which no service has${hint}`);
      }
    for (const name of safe)
      if (!allow.includes(name))
        throw new TypeError(`httpHandler: safe names "${name}", which is not in allow`);
    for (const name of allow) {
      const method = found.get(name)?.();
      // The name of an instance follows "#", which begins another part of a URL.
      if (method !== undefined) this.#byPath.set(`${prefix}/${name.replace("#", "%23")}`, method);
    }
  }

  find(path: string): HttpMethod | undefined {
    return this.#byPath.get(path);
  }

  close(): Promise<void> {
    return this.#local.close();
  }

  #method(
    name: string,
    method: string,
    { kind, input, output }: AnyMethod,
    served: Implementation | RemoteService,
    isSafe: boolean,
  ): HttpMethod {
    if (kind === "clientStream" || kind === "duplexStream")
      throw new TypeError(`httpHandler: allow names "${name}", a ${kind}, which has no form in HTTP`);
    const form = isVoid(input) ? undefined : new JsonForm(input, "input", "input");
    if (form?.hasMemory || new JsonForm(output, "output", "output").hasMemory)
      throw new TypeError(`httpHandler: allow names "${name}", whose memory JSON cannot carry`);
    const client = this.#clientOf(served);
    let made: Promise<CallFunction> | undefined;
    const make = async (): Promise<CallFunction> => {
      const one = (await client())[method] as ClientFunction;
      return form === undefined ? (_, options) => one(options) : one;
    };
    return {
      ...{ name, kind, isSafe, input: form },
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
