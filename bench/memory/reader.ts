import { Engine, type ItemStream } from "cinnabar";
import { type Usage, usage } from "../echo/usage.ts";
import { Hold } from "./contract.ts";
import { usersShare } from "./users-share.ts";

export interface Reader extends Usage {
  /** Opens so many more streams, and waits for an item of each. */
  begin(count: number): Promise<void>;
  /** Bytes of one waiting consumer without a stream: its promise and what it does with an error. */
  waitingConsumerBytes(count: number): Promise<number>;
}

/** Streams between two turns of the loop, so that they leave as they come. */
const batch = 500;

/** A consumer of streams that have no items. */
export async function open(url: string): Promise<Reader> {
  const engine = await Engine.open();
  const client = (await engine.connect(url)).client(Hold);
  const streams: ItemStream<unknown>[] = [];
  return {
    ...usage,

    async begin(count) {
      for (let i = 0; i < count; i++) {
        const stream = client.watch();
        stream.next().catch(() => {});
        streams.push(stream);
        if (i % batch === 0) await new Promise(setImmediate);
      }
      while (engine.stats().calls.out < streams.length) await new Promise(setImmediate);
    },

    waitingConsumerBytes: async (count) =>
      usersShare(count, () => {
        let resolve: unknown;
        new Promise((settle) => {
          resolve = settle;
        }).catch(() => {});
        return resolve;
      }),

    close: () => engine.close(),
  };
}
