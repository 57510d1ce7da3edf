import { describe, expect, it } from "vitest";
import { senderState } from "../../wire/frame.ts";
import { PingState } from "./ping-state.ts";
import type { WatchedSession } from "./watched-session.ts";

function setUp() {
  const outbox = { framesLeft: 0, bare: () => {}, latest: () => {} };
  const services = { gate: { requests: true }, progress: { wake() {} } };
  const state = new PingState({ outbox, services } as unknown as WatchedSession);
  return { state, outbox };
}

describe("what has left", () => {
  it("is unconfirmed when something has left and nothing follows it, until a pong confirms it", () => {
    const { state, outbox } = setUp();
    expect(state.isUnconfirmed()).toBe(false);
    outbox.framesLeft += 3;
    expect(state.isUnconfirmed()).toBe(false);
    expect([state.isUnconfirmed(), state.isUnconfirmed()]).toEqual([true, true]);
    state.confirm(state.confirmationWord);
    expect(state.isUnconfirmed()).toBe(false);
  });

  it("is not unconfirmed while frames leave: the number of each message shows the loss of those before it", () => {
    const { state, outbox } = setUp();
    for (let i = 0; i < 10; i++) {
      outbox.framesLeft += 1;
      expect(state.isUnconfirmed()).toBe(false);
    }
  });

  it("is unconfirmed again when something left after the ping that a pong answers", () => {
    const { state, outbox } = setUp();
    outbox.framesLeft += 1;
    const word = state.confirmationWord;
    outbox.framesLeft += 1;
    state.confirm(word);
    state.isUnconfirmed();
    expect(state.isUnconfirmed()).toBe(true);
  });

  it("is not unconfirmed for pings and pongs", () => {
    const { state, outbox } = setUp();
    for (let i = 0; i < 10; i++) {
      state.ask(0);
      outbox.framesLeft += 1;
      expect(state.isUnconfirmed()).toBe(false);
    }
  });
});

describe("the state of a peer", () => {
  it("says once that the peer drains, and leaves that as it is while a guard answers", () => {
    const { state } = setUp();
    expect([state.onState(senderState.draining), state.onState(senderState.draining)]).toEqual([true, false]);
    expect([state.onState(senderState.busy), state.drains, state.busy]).toEqual([false, true, true]);
    expect([state.onState(senderState.serving), state.drains, state.busy]).toEqual([false, false, false]);
  });
});
