import { Engine, implement } from "cinnabar";
import { type Usage, usage } from "../echo/usage.ts";
import { Hold, limits } from "./contract.ts";
import { usersShare } from "./users-share.ts";

export interface Holder extends Usage {
  url(): Promise<string>;
  held(): Promise<number>;
  /** Bytes of one waiting handler of a stream, called by hand: its generator, its promises. */
  waitingHandlerBytes(count: number): Promise<number>;
}

/** A server whose handlers have all begun and never end. */
export async function open(listen: string): Promise<Holder> {
  const never = new Promise<never>(() => {});
  async function* watch(): AsyncGenerator<never> {
    yield await never;
  }
  const engine = await Engine.open({
    listen,
    serve: [implement(Hold, { hold: () => never, watch })],
    limits,
  });
  return {
    ...usage,
    url: async () => engine.urls[0] ?? "",
    held: async () => engine.stats().calls.in,
    waitingHandlerBytes: async (count) =>
      usersShare(count, () => {
        const items = watch();
        items.next();
        return items;
      }),
    close: () => engine.close(),
  };
}
