import type { Authority, Membership } from "../authority/authority.ts";
import { Newest } from "../view/newest.ts";
import { type Member, makeView, type View } from "../view/view.ts";

/** An authority with views that the test makes. */
export function scripted(
  members: readonly Member[],
  self = members[0],
): {
  authority: Authority;
  publish(view: View): void;
  fail(error: Error): void;
} {
  const views = new Newest(makeView("test", 1, members));
  const membership: Membership = {
    get view() {
      return views.value;
    },
    get self() {
      return self as Member;
    },
    views: () => views.read("next"),
    refresh() {},
    report() {},
    close: async () => views.end(),
    leave: async () => views.end(),
  };
  return {
    authority: { join: async () => membership, observe: async () => membership },
    publish: (view) => views.set(view),
    fail: (error) => views.end(error),
  };
}

export const member = (rank: number, incarnation: number, url: string): Member => ({
  ...{
    rank,
    incarnation,
    urls: [url],
    engine: undefined,
    host: undefined,
    detector: undefined,
    metadata: {},
  },
});
