import { Engine } from "cinnabar";
import { type Group, implementCollectives, joinGroup, staticAuthority, type TreeShape } from "cinnabar-group";
import { smallObject } from "../contenders/payloads.ts";
import type { Party } from "../suite/child.ts";
import { Gathering } from "./contract.ts";
import { type QuantilesUs, rateOf, timeEach, timeFor } from "./timing.ts";

export type Tree = TreeShape | "auto";

/** A member of groups in a process of its own. */
export interface GroupMember extends Party {
  /** Where it listens: shm, then tcp. */
  urls(): Promise<readonly string[]>;
  /** Joins a group of these members, as the one with this rank. */
  join(group: string, rank: number, members: readonly string[]): Promise<void>;
  /** So many callers broadcast at a time, for so long: how many broadcasts there are in a second. */
  rate(group: string, tree: Tree, callers: number, durationMs: number): Promise<number>;
  /** Broadcasts and reduces for so long, one call after the other. */
  broadcast(group: string, tree: Tree, durationMs: number): Promise<QuantilesUs>;
  /** Goes through so many barriers. All members must. */
  barriers(group: string, tree: Tree, count: number): Promise<QuantilesUs>;
}

export async function open(id: string): Promise<GroupMember> {
  const gathering = implementCollectives(Gathering, { echo: (input) => input });
  const engine = await Engine.open({ listen: [`shm://cinnabar-group-${id}`, "tcp://127.0.0.1:0"] });
  const groups = new Map<string, ReturnType<typeof open>>();

  function open(group: Group) {
    const { echo } = group.all(Gathering);
    const { members } = group.view;
    const sum = smallObject.id * members.length;
    return {
      async broadcast(tree: Tree) {
        const { value } = await echo(smallObject, { tree });
        if (value.id !== sum) throw new Error(`the reduced answer has ${value.id}, not ${sum}`);
      },
      barrier: (tree: Tree) => group.barrier("barrier", { tree }),
      close: () => group.close(),
    };
  }

  const member = (group: string) => {
    const found = groups.get(group);
    if (found === undefined) throw new Error(`this process is no member of ${group}`);
    return found;
  };
  return {
    urls: async () => engine.urls,
    async join(name, rank, members) {
      const authority = staticAuthority(members.map((url) => ({ urls: [url] })));
      groups.set(name, open(await joinGroup(name, { engine, authority, rank, serve: [gathering] })));
    },
    async rate(group, tree, callers, durationMs) {
      const { broadcast } = member(group);
      return rateOf(callers, durationMs, () => broadcast(tree));
    },
    async broadcast(group, tree, durationMs) {
      const { broadcast } = member(group);
      return timeFor(durationMs, () => broadcast(tree));
    },
    async barriers(group, tree, count) {
      const { barrier } = member(group);
      return timeEach(count, () => barrier(tree));
    },
    async close() {
      for (const each of groups.values()) await each.close();
      await engine.close();
    },
  };
}
