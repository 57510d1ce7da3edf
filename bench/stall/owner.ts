import { Engine, implement } from "cinnabar";
import type { Party } from "../suite/child.ts";
import { Stall } from "./contract.ts";

export interface Owner extends Party {
  url(): Promise<string>;
}

/** A process with memory, and a handler that keeps its thread busy. */
export async function open(listen: string): Promise<Owner> {
  let written = new Int32Array(1);
  let read = new Int32Array(1);
  const engine: Engine = await Engine.open({
    listen,
    serve: [
      implement(Stall, {
        share({ bytes }) {
          written = new Int32Array(bytes / 4);
          read = new Int32Array(bytes / 4);
          return {
            written: engine.expose(written, { access: "write" }).share(),
            read: engine.expose(read, { access: "read" }).share(),
          };
        },
        stall({ ms }) {
          const first = Atomics.load(written, written.length - 1);
          let counted = 0;
          for (const until = performance.now() + ms; performance.now() < until; )
            Atomics.store(read, 0, ++counted);
          const last = Atomics.load(written, written.length - 1);
          Atomics.store(read, 0, 0);
          return { first, last, counted };
        },
      }),
    ],
  });
  return { url: async () => engine.urls[0] ?? "", close: () => engine.close() };
}
