import { service } from "cinnabar/standard";
import { afterEach, expect, it } from "vitest";
import { makeView, notInView, type View } from "../view/view.ts";
import { closeAll, groupOf, member, type TestMember } from "./group-of.test-support.ts";
import { implementCollectives } from "./handlers.ts";
import { collective } from "./method.ts";

const Store = service("store.v1", { touch: collective() });
let opened: TestMember[] = [];
afterEach(() => closeAll(opened));

/** The next view, in which the place of rank 2 is left or another process has it. */
const nextOf = ({ members, version }: View, successor: boolean): View => {
  const others = members.filter(({ rank }) => rank !== 2);
  return makeView("test", version + 1, [...others, ...(successor ? [member(2, ["mem://another"], 2)] : [])]);
};

it.each([false, true])(
  "a removed member calls nobody, has it a successor (%s) or none",
  async (successor) => {
    const runs: number[] = [];
    opened = await groupOf(3, (rank) => [implementCollectives(Store, { touch: () => void runs.push(rank) })]);
    const removed = opened[2] as TestMember;
    const { touch } = removed.collectives.all(Store);
    await touch();
    expect(runs.splice(0).sort()).toEqual([0, 1, 2]);
    const view = nextOf(removed.view, successor);
    for (const each of opened) each.view = view;
    for (const options of [{}, { view: "root" }] as const) {
      const error = await touch({ ...options, exclude: [2] }).catch((thrown: unknown) => thrown);
      expect(error).toMatchObject({ code: "failed_precondition", notExecuted: true });
      expect(notInView(error)).toMatchObject({ group: "test", rank: 2, version: view.version });
    }
    expect([runs, removed.collectives.stats().started]).toEqual([[], 1]);
  },
);
