import { Engine, implement } from "cinnabar";
import { type Usage, usage } from "../echo/usage.ts";
import { Hold, limits } from "./contract.ts";

export interface Holder extends Usage {
  url(): Promise<string>;
  held(): Promise<number>;
}

/** A server whose handlers have all begun and never end. */
export async function open(listen: string): Promise<Holder> {
  const never = new Promise<undefined>(() => {});
  const engine = await Engine.open({ listen, serve: [implement(Hold, { hold: () => never })], limits });
  return {
    ...usage,
    url: async () => engine.urls[0] ?? "",
    held: async () => engine.stats().callsIn,
    close: () => engine.close(),
  };
}
