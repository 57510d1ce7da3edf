import { Engine } from "cinnabar";
import { smallObject } from "../contenders/payloads.ts";
import { type Usage, usage } from "../echo/usage.ts";
import { Hold } from "./contract.ts";
import { open as openHolder } from "./holder.ts";

export interface Caller extends Usage {
  /** Makes so many calls, and returns when all have left (or wait); their promises are held. */
  call(count: number): Promise<void>;
}

const timeoutMs = 1_000_000;
/** Calls between two turns of the loop, so that they leave as they come. */
const batch = 500;

/**
 * A client with calls that are never answered: `sent`, as many as are made; or `waiting`, all but one for a place in
 * the window. With a URL of mem the server is in this process as well.
 */
export async function open(url: string, phase: "sent" | "waiting"): Promise<Caller> {
  const server = url.startsWith("mem:") ? await openHolder(url) : undefined;
  const engine = await Engine.open();
  const window =
    phase === "sent" ? {} : { maxInFlight: 1, maxWaiting: 5_000_000, maxWaitingBytes: 4 * 2 ** 30 };
  const client = (await engine.connect(url, { window })).client(Hold, { timeoutMs });
  const calls: Promise<unknown>[] = [];

  return {
    ...usage,

    async call(count) {
      const wanted = calls.length + count;
      for (let i = 0; i < count; i++) {
        const call = client.hold(smallObject);
        // The end of all is theirs, too.
        if (i === 0) call.catch(() => {});
        calls.push(call);
        if (i % batch === 0) await new Promise(setImmediate);
      }
      const settled = () => {
        const { calls } = engine.stats();
        return calls.out + calls.waiting >= wanted;
      };
      while (!settled()) await new Promise(setImmediate);
      while (server !== undefined && phase === "sent" && (await server.held()) < wanted)
        await new Promise(setImmediate);
    },

    // The rejections would be printed one by one.
    close: async () => process.exit(),
  };
}
