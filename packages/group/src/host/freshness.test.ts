import { Engine, implement, type Metadata, service, unary } from "cinnabar/standard";
import { afterEach, expect, it, vi } from "vitest";
import { type Member, makeView, type View } from "../view/view.ts";
import { CallerStamp, fencing, type Presence, stampedClient } from "./freshness.ts";

const Who = service("who.v1", { hello: unary() });
const open: AsyncDisposable[] = [];

afterEach(async () => {
  for (const each of open.splice(0).reverse()) await each[Symbol.asyncDispose]();
});

const member = (rank: number, incarnation: number): Member => ({
  ...{
    rank,
    incarnation,
    urls: ["mem://a"],
    engine: undefined,
    host: undefined,
    detector: undefined,
    metadata: {},
  },
});

const viewOf = (version: number, ...members: Member[]) => makeView("a group", version, members);

class Known implements Presence {
  readonly refreshed: number[] = [];
  readonly self: Member | undefined;
  view: View;

  constructor(view: View, self?: Member) {
    this.view = view;
    this.self = self;
  }

  refresh(version: number): void {
    this.refreshed.push(version);
  }
}

let names = 0;

/** A call from a process that knows this to a process that knows that. */
async function pair(caller: Known, callee: Known) {
  let runs = 0;
  const url = `mem://freshness-${process.pid}-${++names}`;
  const server = await Engine.open({
    listen: url,
    serve: [
      implement(Who, {
        hello: () => {
          runs += 1;
        },
      }),
    ],
    middleware: { server: [fencing((name) => (name === "a group" ? callee : undefined))] },
  });
  open.push(server);
  const engine = await Engine.open();
  open.push(engine);
  let answer: Metadata | undefined;
  const stamp = new CallerStamp(caller);
  const peer = engine.lazyPeer(url);
  const stamped = peer.client(Who, { middleware: [stamp.middleware] });
  const { hello } = stampedClient(peer.client(Who), stamped, () => stamp.isDue);
  const call = () => hello.result({ onTrailers: (metadata) => (answer = metadata) });
  return { call, stamp, runs: () => runs, answer: () => answer };
}

const [first, second] = [member(0, 1), member(1, 1)];

it("a caller that is behind learns it in one call, and a callee that is behind too", async () => {
  const [caller, callee] = [new Known(viewOf(3, first)), new Known(viewOf(5, first, second))];
  const { call, stamp } = await pair(caller, callee);
  expect(stamp.isDue).toBe(true);
  expect((await call()).ok).toBe(true);
  expect([caller.refreshed, callee.refreshed]).toEqual([[5], []]);
  caller.view = viewOf(7, first);
  // Another view is reported at once, however recent the former one was.
  expect(stamp.isDue).toBe(true);
  await call();
  expect([caller.refreshed, callee.refreshed]).toEqual([[5], [7]]);
});

it("an answer to who knows the same carries nothing", async () => {
  const [caller, callee] = [new Known(viewOf(5, first), first), new Known(viewOf(5, first))];
  const { call, answer } = await pair(caller, callee);
  expect((await call()).ok).toBe(true);
  expect([answer(), caller.refreshed, callee.refreshed]).toEqual([undefined, [], []]);
});

it("a callee that has accepted a view does not get it again for a while", async () => {
  const [caller, callee] = [new Known(viewOf(5, first), first), new Known(viewOf(5, first))];
  const { call, stamp } = await pair(caller, callee);
  vi.useFakeTimers({ toFake: ["performance"] });
  try {
    await call();
    expect(stamp.isDue).toBe(false);
    vi.advanceTimersByTime(101);
    // It may have stood still, and others have gone on.
    expect(stamp.isDue).toBe(true);
    callee.view = viewOf(6, first);
    await call();
    expect(caller.refreshed).toEqual([6]);
  } finally {
    vi.useRealTimers();
  }
});

it("a member that was removed is refused, and learns it; one that is in the newer view is served", async () => {
  const [caller, callee] = [new Known(viewOf(3, first, second), second), new Known(viewOf(5, first))];
  const { call, runs } = await pair(caller, callee);
  expect(await call()).toMatchObject({
    ok: false,
    error: {
      code: "failed_precondition",
      message: expect.stringContaining("the caller is not in view 5 as rank 1 any more"),
    },
  });
  expect([caller.refreshed, runs()]).toEqual([[5], 0]);
  // Its successor in the place is another one.
  callee.view = viewOf(6, first, member(1, 6));
  expect((await call()).ok).toBe(false);
  callee.view = viewOf(7, first, second);
  expect((await call()).ok).toBe(true);
});

it("a member that was removed and knows it is refused; an observer of the same view is served", async () => {
  const view = viewOf(5, first);
  const [caller, callee] = [new Known(view, second), new Known(view, first)];
  const { call, stamp, runs, answer } = await pair(caller, callee);
  for (let i = 0; i < 2; i++)
    expect(await call()).toMatchObject({ ok: false, error: { code: "failed_precondition" } });
  // It is not behind, and is asked again with each call.
  expect([runs(), answer(), caller.refreshed, stamp.isDue]).toEqual([0, undefined, [], true]);
  const observer = await pair(new Known(view), callee);
  expect((await observer.call()).ok).toBe(true);
  // A callee that is behind cannot know.
  callee.view = viewOf(4, first, second);
  expect((await call()).ok).toBe(true);
  expect(callee.refreshed).toEqual([5]);
});

it("who says nothing, and who says something else, is served", async () => {
  const caller = new Known(makeView("another group", 1, [first]), first);
  const { call, runs } = await pair(caller, new Known(viewOf(5, second)));
  expect((await call()).ok).toBe(true);
  expect([caller.refreshed, runs()]).toEqual([[], 1]);
});
