import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { LaneList } from "../src/lane-list.ts";
import type { ThreadEnd } from "../src/lane-thread.ts";
import { openLanes } from "../src/lanes.ts";
import type { LaneListening, LaneOrders } from "../src/messages.ts";

interface Thread {
  readonly orders: LaneOrders;
  end(how: ThreadEnd): void;
}

const { threads, wildcard, rails } = vi.hoisted(() => ({
  threads: [] as Thread[],
  wildcard: "verbs://*:0",
  rails: { urls: [] as string[] },
}));

// There are no devices here.
vi.mock("../src/published-urls.ts", () => ({ publishedUrls: async () => rails.urls }));

vi.mock("../src/lane-thread.ts", () => ({
  /** A thread that serves at the URLs of its orders (the first thread of each lane), or never begins to serve. */
  LaneThread: class implements Thread {
    readonly orders: LaneOrders;
    readonly listening: Promise<LaneListening>;
    readonly ended: Promise<ThreadEnd>;
    end: (how: ThreadEnd) => void = () => {};

    constructor(orders: LaneOrders) {
      this.orders = orders;
      const urls = orders.listen.map((url, i) => url.replace(/:0$/, `:${7000 + 10 * orders.lane + i}`));
      const isFirst = !threads.some((thread) => thread.orders.lane === orders.lane);
      this.listening = isFirst
        ? Promise.resolve({ urls, incarnation: BigInt(orders.lane + 1) })
        : new Promise(() => {});
      this.ended = new Promise((resolve) => {
        this.end = resolve;
      });
      threads.push(this);
    }

    ask(): Promise<undefined> {
      return Promise.resolve(undefined);
    }

    terminate(): void {
      this.end({ exitCode: 1, error: undefined });
    }
  },
}));

const died: ThreadEnd = { exitCode: 1, error: undefined };
const soon = { timeout: 20_000, interval: 1 };
const onRails = ["tcp://127.0.0.1:0", "tcp://127.0.0.2:0"];

beforeEach(() => {
  threads.length = 0;
  rails.urls = onRails;
});
afterEach(() => void vi.restoreAllMocks());

const open = (lanes = 2) =>
  openLanes(new URL("file:///service.js"), {
    listen: wildcard,
    lanes,
    dispatcher: "refer",
    restart: { baseDelayMs: 1 },
    onLaneDied() {},
  });

it("lanes at every device have an address for each of the dispatcher's, also one that cannot be started again", async () => {
  await using host = await open();
  expect(host.urls).toHaveLength(2);
  const told = vi.spyOn(LaneList.prototype, "post");
  // Devices that come or go later change nothing.
  rails.urls = ["tcp://127.0.0.3:0"];
  for (const round of [1, 2, 3]) {
    await vi.waitFor(() => expect(threads).toHaveLength(1 + round), soon);
    threads.findLast(({ orders }) => orders.lane === 0)?.end(died);
  }
  await vi.waitFor(() => expect(threads).toHaveLength(5), soon);
  expect(threads.at(-1)?.orders.listen).toEqual(onRails);
  expect(told.mock.lastCall?.[0].lanes.map(({ urls }) => urls)).toEqual([
    onRails,
    ["tcp://127.0.0.1:7010", "tcp://127.0.0.2:7011"],
  ]);
});
