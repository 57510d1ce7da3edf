import { getEventListeners } from "node:events";
import { describe, expect, it } from "vitest";
import { type Abortable, unwatchAbort, watchAbort } from "./made-call.ts";

class Item implements Abortable {
  readonly heard: unknown[] = [];
  readonly #then: () => void;
  constructor(then: () => void = () => {}) {
    this.#then = then;
  }
  onAbort(reason: unknown): void {
    this.heard.push(reason);
    this.#then();
  }
}

describe("watching a signal", () => {
  it("tells each watcher once, by one listener", () => {
    const controller = new AbortController();
    const items = Array.from({ length: 100 }, () => new Item());
    for (const item of items) watchAbort(controller.signal, item);
    expect(getEventListeners(controller.signal, "abort")).toHaveLength(1);
    controller.abort("why");
    for (const item of items) expect(item.heard).toEqual(["why"]);
  });

  it("does not tell who has stopped watching, nor twice who watched again", () => {
    const controller = new AbortController();
    const [gone, back] = [new Item(), new Item()];
    for (const item of [gone, back]) {
      watchAbort(controller.signal, item);
      unwatchAbort(controller.signal, item);
    }
    watchAbort(controller.signal, back);
    controller.abort(1);
    expect([gone.heard, back.heard]).toEqual([[], [1]]);
  });

  it("takes watchers that stop watching, themselves and others, while they are told", () => {
    const controller = new AbortController();
    const { signal } = controller;
    const items: Item[] = [];
    const leave = () => {
      for (const item of items) unwatchAbort(signal, item);
    };
    items.push(new Item(leave), new Item(leave), new Item(leave));
    for (const item of items) watchAbort(signal, item);
    controller.abort("x");
    expect(items[0]?.heard).toEqual(["x"]);
  });

  it("listens as long as anybody watches", () => {
    const { signal } = new AbortController();
    const [first, second] = [new Item(), new Item()];
    const listeners = () => getEventListeners(signal, "abort").length;
    for (let round = 0; round < 2; round++) {
      watchAbort(signal, first);
      watchAbort(signal, second);
      unwatchAbort(signal, first);
      expect(listeners()).toBe(1);
      unwatchAbort(signal, second);
      unwatchAbort(signal, second);
      expect(listeners()).toBe(0);
    }
  });

  it("keeps signals apart, and does not mind one that nobody watched", () => {
    const [one, two] = [new AbortController(), new AbortController()];
    const item = new Item();
    watchAbort(one.signal, item);
    unwatchAbort(two.signal, item);
    two.abort(2);
    one.abort(1);
    expect(item.heard).toEqual([1]);
  });
});
