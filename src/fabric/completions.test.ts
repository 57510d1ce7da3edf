import { describe, expect, it } from "vitest";
import {
  completion,
  entryWords,
  firstParked,
  headerWords,
  ringBytes,
  ringEntries,
} from "./completion-ring.ts";
import { Completions } from "./completions.ts";
import type { Port, PortSink } from "./port.ts";
import { SendSlots } from "./send-slots.ts";

const slotBytes = 64;
const port = {} as Port;

function setUp() {
  const slots = new SendSlots(4, slotBytes);
  const completions = new Completions(new ArrayBuffer(ringBytes), slots, slotBytes);
  const events: unknown[] = [];
  const sink: PortSink = {
    onMessage: (_, offset, bytes) => events.push(["message", offset, bytes]),
    onMessageLost: (_, status) => events.push(["lost", status]),
    onPutNotification: (_, data, bytes) => events.push(["notification", data, bytes]),
    onPeerGone: (_, address) => events.push(["gone", address]),
  };
  /** Writes an entry as a port does. */
  const write = (kind: number, status: number, token: number, bytes = 0, high = 0) => {
    const { ring } = completions;
    const tail = ring[0] as number;
    ring.set([kind, status, token, bytes, 0, high], headerWords + (tail & (ringEntries - 1)) * entryWords);
    ring[0] = tail + 1;
  };
  return { slots, completions, events, sink, write };
}

describe("ring", () => {
  it("has room for its header and a power of two of entries", () => {
    expect(ringEntries & (ringEntries - 1)).toBe(0);
    expect(ringBytes).toBe((headerWords + ringEntries * entryWords) * 4);
  });
});

describe("completions", () => {
  it("hand out each entry once, oldest first", () => {
    const { completions, events, sink, write } = setUp();
    write(completion.message, 0, 128, 40);
    write(completion.message, 266, 0);
    write(completion.peerGone, 103, 7);
    completions.deliver(3, port, sink);
    expect(events).toEqual([
      ["message", 128, 40],
      ["lost", 266],
      ["gone", 7],
    ]);
    expect(completions.ring[1]).toBe(3);
    completions.deliver(0, port, sink);
    expect(events).toHaveLength(3);
  });

  it("put the halves of a put notification together", () => {
    const { completions, events, sink, write } = setUp();
    write(completion.putNotification, 0, 0xffff_fffe, 7, 0xfedc_ba98);
    write(completion.putNotification, 0, 1);
    completions.deliver(2, port, sink);
    expect(events).toEqual([
      ["notification", 0xfedc_ba98_ffff_fffen, 7],
      ["notification", 1n, 0],
    ]);
  });

  it("stop when a receiver closes the port", () => {
    const { completions, slots, sink, write } = setUp();
    const slot = slots.take();
    completions.expectSent(slot, { onSent: () => {} });
    write(completion.message, 0, 0);
    write(completion.sent, 0, slot);
    completions.deliver(2, port, { ...sink, onMessage: () => completions.abandon(125) });
    expect([completions.sends, slots.free]).toEqual([0, 3]);
  });

  it("let an address be given back only when the entries that may name it are through", () => {
    const { completions, events, sink, write } = setUp();
    write(completion.message, 0, 0);
    write(completion.peerGone, 103, 7);
    completions.deliver(2, port, {
      ...sink,
      onMessage: () => completions.afterDelivery(() => events.push("given back")),
    });
    expect(events).toEqual([["gone", 7], "given back"]);
    completions.afterDelivery(() => events.push("now"));
    expect(events.at(-1)).toBe("now");
  });

  it("give a slot back before its owner hears", () => {
    const { completions, slots, sink, write } = setUp();
    const slot = slots.take();
    const heard: number[][] = [];
    completions.expectSent(slot, { onSent: (status) => heard.push([status, slots.free, completions.sends]) });
    expect([slots.free, completions.sends]).toEqual([3, 1]);
    write(completion.sent, 5, slot);
    completions.deliver(1, port, sink);
    expect(heard).toEqual([[5, 4, 0]]);
  });

  it("give the slot of a parked message back, and tell its owner of the end by the other token", () => {
    const { completions, slots, sink, write } = setUp();
    const slot = slots.take();
    const heard: string[] = [];
    const owner = (name: string) => ({
      onParked: () => heard.push(`${name} parked, ${slots.free} free`),
      onSent: (status: number) => heard.push(`${name} ${status}, ${slots.free} free`),
    });
    completions.expectSent(slot, owner("first"));
    write(completion.parked, 0, slot, 0, firstParked + 1);
    completions.deliver(1, port, sink);
    expect(slots.take()).toBe(slot);
    completions.expectSent(slot, owner("second"));
    write(completion.sent, 0, firstParked + 1);
    write(completion.sent, 5, slot);
    completions.deliver(2, port, sink);
    expect(heard).toEqual(["first parked, 4 free", "first 0, 3 free", "second 5, 4 free"]);
    expect(completions.sends).toBe(0);
  });

  it("end parked messages with the port", () => {
    const { completions, slots, sink, write } = setUp();
    const slot = slots.take();
    const heard: number[] = [];
    completions.expectSent(slot, { onSent: (status) => heard.push(status) });
    write(completion.parked, 0, slot, 0, firstParked);
    completions.deliver(1, port, sink);
    completions.abandon(125);
    expect([heard, completions.sends]).toEqual([[125], 0]);
  });

  it("settle transfers by token, in any order, and use tokens again", () => {
    const { completions, sink, write } = setUp();
    const ended: string[] = [];
    const note = (name: string) => ({
      onTransferred: (status: number, bytes: number) => ended.push(`${name} ${status} ${bytes}`),
    });
    const first = completions.expectTransfer(note("first"));
    const second = completions.expectTransfer(note("second"));
    write(completion.transfer, 0, second, 10);
    write(completion.transfer, 5, first);
    completions.deliver(2, port, sink);
    expect(ended).toEqual(["second 0 10", "first 5 0"]);
    expect(completions.transfers).toBe(0);
    completions.settleTransfer(first, 9, 0);
    expect(ended).toHaveLength(2);
    expect([first, second]).toContain(completions.expectTransfer(note("third")));
  });

  it("go round the ring, and round the 32 bits of its counters", () => {
    const { completions, events, sink, write } = setUp();
    completions.ring[0] = completions.ring[1] = 0xffff_fffe;
    for (let i = 0; i < ringEntries + 5; i++) {
      write(completion.peerGone, 0, i);
      completions.deliver(1, port, sink);
    }
    expect(events).toHaveLength(ringEntries + 5);
    expect(events.at(-1)).toEqual(["gone", ringEntries + 4]);
    expect(completions.ring[1]).toBe(ringEntries + 3);
  });

  it("move the head past an entry before its receiver runs, so that a receiver that throws loses nothing else", () => {
    const { completions, events, sink, write } = setUp();
    write(completion.message, 0, 0, 1);
    write(completion.message, 0, 64, 2);
    const throwing: PortSink = {
      ...sink,
      onMessage: () => {
        throw new Error("receiver");
      },
    };
    expect(() => completions.deliver(2, port, throwing)).toThrow("receiver");
    completions.deliver(1, port, sink);
    expect(events).toEqual([["message", 64, 2]]);
  });

  it("tell everybody who waits when the port is closed, once", () => {
    const { completions, slots } = setUp();
    const heard: string[] = [];
    completions.expectSent(slots.take(), { onSent: (status) => heard.push(`sent ${status}`) });
    completions.expectTransfer({ onTransferred: (status) => heard.push(`transfer ${status}`) });
    completions.abandon(125);
    completions.abandon(125);
    expect(heard).toEqual(["transfer 125", "sent 125"]);
    expect([completions.sends, completions.transfers]).toEqual([0, 0]);
  });
});
