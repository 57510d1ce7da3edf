import { Engine } from "cinnabar";
import { connectLanes } from "cinnabar-lanes";
import type { Party } from "../../suite/child.ts";
import { Computing } from "./contract.ts";

/** A client, in its process. */
export interface LanesClient extends Party {
  /** Calls a second, with `inFlight` under way at any time for `ms`, each computing for `us`. */
  measure(inFlight: number, us: number, ms: number): Promise<number>;
}

export async function open(url: string): Promise<LanesClient> {
  const engine = await Engine.open();
  const peer = await connectLanes(engine, url, { policy: "leastInFlight" });
  const computing = peer.client(Computing);
  return {
    async measure(inFlight, us, ms) {
      const begun = performance.now();
      let calls = 0;
      const caller = async (): Promise<void> => {
        for (; performance.now() < begun + ms; calls++) await computing.compute({ us });
      };
      await Promise.all(Array.from({ length: inFlight }, caller));
      return (calls * 1000) / (performance.now() - begun);
    },
    close: () => engine.close(),
  };
}
