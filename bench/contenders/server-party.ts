import type { Party } from "../suite/child.ts";
import { loadContender } from "./index.ts";

/** A contender's server, in a process of its own. */
export interface ServerParty extends Party {
  address(): Promise<string>;
}

export async function open(key: string, id: string, verbsHost?: string): Promise<ServerParty> {
  const serving = await (await loadContender(key, id, verbsHost)).serve?.();
  if (serving === undefined) throw new Error(`${key} has no server of its own`);
  return { address: async () => serving.address, close: () => serving.close() };
}
