import { Packr } from "msgpackr";
import { Dealer, Router } from "zeromq";
import type { Contender } from "./contender.ts";
import type { SmallObject } from "./payloads.ts";
import { Waiting } from "./waiting.ts";

/** How many messages are in flight is for the callers to bound. */
const noMarks = { sendHighWaterMark: 0, receiveHighWaterMark: 0, linger: 0 };

/**
 * zeromq.js, DEALER to ROUTER, msgpack in one frame after the call's number in another. `bind` is an endpoint to listen
 * at.
 */
export function zeromq(bind: string): Contender {
  return {
    async serve() {
      const router = new Router(noMarks);
      await router.bind(bind);
      const codec = new Packr();
      void (async () => {
        for await (const [from, id, body] of router)
          await router.send([from as Buffer, id as Buffer, codec.pack(codec.unpack(body as Buffer))]);
      })();
      return { address: router.lastEndpoint ?? "", close: async () => router.close() };
    },
    async connect(address) {
      const dealer = new Dealer(noMarks);
      dealer.connect(address);
      const codec = new Packr();
      const waiting = new Waiting<unknown>();
      void (async () => {
        for await (const [id, body] of dealer)
          waiting.answer((id as Buffer).readUInt32LE(), codec.unpack(body as Buffer));
      })();
      // Only one send may be under way at a time; nearly always it is done at once.
      const queue: Buffer[][] = [];
      const sendAll = async () => {
        for (let frames = queue[0]; frames !== undefined; frames = queue[0]) {
          await dealer.send(frames);
          queue.shift();
        }
      };
      const call = (message: unknown) =>
        waiting.call((id) => {
          const number = Buffer.allocUnsafe(4);
          number.writeUInt32LE(id);
          queue.push([number, codec.pack(message)]);
          if (queue.length === 1) void sendAll();
        });
      return {
        echo: (message) => call(message) as Promise<SmallObject>,
        bytes: (bytes) => call(bytes) as Promise<Uint8Array>,
        close: async () => dealer.close(),
      };
    },
  };
}
