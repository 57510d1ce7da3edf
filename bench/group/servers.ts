import type { Serving } from "../contenders/contender.ts";
import { loadContender } from "../contenders/index.ts";
import type { Party } from "../suite/child.ts";

/** One of those that a fan-out by hand calls: a process with a server for each way to it. */
export interface Servers extends Party {
  /** In the order of the keys. */
  addresses(): Promise<readonly string[]>;
}

/** @param keys of contenders, as `grpc-tcp` */
export async function open(keys: readonly string[], id: string): Promise<Servers> {
  const servings: Serving[] = [];
  for (const key of keys) {
    const serving = await (await loadContender(key, `${id}-${key}`)).serve?.();
    if (serving === undefined) throw new Error(`${key} has no server of its own`);
    servings.push(serving);
  }
  return {
    addresses: async () => servings.map(({ address }) => address),
    async close() {
      for (const each of servings) await each.close();
    },
  };
}
