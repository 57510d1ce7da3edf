import type { Party } from "../suite/child.ts";
import { streamContender } from "./contenders.ts";

/** A contender's server, in a process of its own. */
export interface Producer extends Party {
  address(): Promise<string>;
}

export async function open(key: string, id: string): Promise<Producer> {
  const serving = await streamContender(key, id).serve();
  return { address: async () => serving.address, close: () => serving.close() };
}
