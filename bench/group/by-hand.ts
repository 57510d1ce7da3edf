import type { Connection } from "../contenders/contender.ts";
import { loadContender } from "../contenders/index.ts";
import { smallObject } from "../contenders/payloads.ts";
import type { Party } from "../suite/child.ts";
import { added } from "./contract.ts";
import { type QuantilesUs, rateOf, timeFor } from "./timing.ts";

/** The caller of a fan-out that is written by hand: a unary call to each of the servers, all at a time. */
export interface FanOut extends Party {
  connect(addresses: readonly string[]): Promise<void>;
  /** So many callers broadcast at a time, for so long: how many broadcasts there are in a second. */
  rate(callers: number, durationMs: number): Promise<number>;
  /** Broadcasts and reduces for so long, one call after the other. */
  broadcast(durationMs: number): Promise<QuantilesUs>;
}

/** @param key of a contender, as `grpc-tcp` */
export async function open(key: string, id: string): Promise<FanOut> {
  const contender = await loadContender(key, id);
  const connections: Connection[] = [];
  const broadcast = async () => {
    const answers = await Promise.all(connections.map((each) => each.echo(smallObject)));
    // The caller is one of those that answer, and needs no call for that.
    const reduced = answers.reduce(added, smallObject);
    const sum = smallObject.id * (connections.length + 1);
    if (reduced.id !== sum) throw new Error(`the reduced answer has ${reduced.id}, not ${sum}`);
  };
  return {
    async connect(addresses) {
      for (const address of addresses) connections.push(await contender.connect(address));
    },
    rate: (callers, durationMs) => rateOf(callers, durationMs, broadcast),
    broadcast: (durationMs) => timeFor(durationMs, broadcast),
    async close() {
      for (const each of connections) await each.close();
    },
  };
}
