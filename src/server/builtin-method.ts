import type { IncomingCall } from "../call/incoming-call.ts";
import { fail, type ItemDirections, type ServedMethod } from "../transfer/control/control-method.ts";
import type { PeerLink } from "../transfer/control/peer-link.ts";
import { builtinMethods, firstBuiltin } from "../wire/builtin.ts";

/** Makes what serves a method of a built-in service. */
export type BuiltinLoader = (name: string) => Promise<ServedMethod>;

/** A method of a built-in service. What serves it is loaded and made by the first call. */
class BuiltinMethod implements ServedMethod {
  readonly path: string;
  readonly items: ItemDirections | undefined;
  readonly #load: () => Promise<ServedMethod>;
  #served: ServedMethod | undefined;
  #loading: Promise<ServedMethod> | undefined;

  constructor(path: string, items: ItemDirections | undefined, load: () => Promise<ServedMethod>) {
    this.path = path;
    this.items = items;
    this.#load = load;
  }

  serve(call: IncomingCall, peer: PeerLink, input: unknown): void {
    if (this.#served !== undefined) return this.#served.serve(call, peer, input);
    this.#loading ??= this.#load();
    this.#loading.then(
      (served) => {
        this.#served = served;
        served.serve(call, peer, input);
      },
      () => {
        this.#loading = undefined;
        fail(call, "internal", `${this.path} could not be loaded`);
      },
    );
  }
}

const outputs: ItemDirections = { inputs: false, outputs: true };

/** A built-in service that is off: each call of it is told how to turn it on. */
export function builtinServiceOff(service: string, remedy: string): [place: number, ServedMethod][] {
  const off: BuiltinLoader = async () => ({
    serve: (call) => fail(call, "unimplemented", `${service} is off at this engine: ${remedy}`),
  });
  return builtinService(service, off);
}

/** The methods of a built-in service, with their places from `firstBuiltin` on. */
export function builtinService(service: string, load: BuiltinLoader): [place: number, ServedMethod][] {
  const prefix = `${service}/`;
  return Object.entries(builtinMethods)
    .filter(([path]) => path.startsWith(prefix))
    .map(([path, { number, kind }]) => {
      const items = kind === "serverStream" ? outputs : undefined;
      return [number - firstBuiltin, new BuiltinMethod(path, items, () => load(path.slice(prefix.length)))];
    });
}
