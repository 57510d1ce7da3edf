import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { itemCost, ReceiveCredits, SendCredits } from "./item-credits.ts";

/** Both accounts of one direction, with items on their way between them. */
function link(items: number, bytes: number) {
  const sender = new SendCredits();
  const receiver = new ReceiveCredits({ items, bytes });
  const grants: [number, number][] = [];
  const grant = () => receiver.grant((more, bytesMore) => void grants.push([more, bytesMore]));
  return { sender, receiver, grants, grant };
}

describe("the credits of items", () => {
  it("begin with nothing, until the whole window is granted", () => {
    const { sender, receiver, grants, grant } = link(10, 1000);
    expect(sender.some).toBe(false);
    expect(receiver.arrive(1)).toBe(false);
    grant();
    expect(grants).toEqual([[10, 1000]]);
    expect(sender.add(10, 1000)).toBe(true);
    expect(sender.some).toBe(true);
  });

  it("let one item take the bytes below zero, and no other", () => {
    const { sender, receiver, grant } = link(10, 1000);
    grant();
    sender.add(10, 1000);
    sender.spend(5000);
    expect(sender.some).toBe(false);
    expect(receiver.arrive(5000)).toBe(true);
    expect(receiver.arrive(1)).toBe(false);
    expect(receiver.take(5000)).toBe(true);
  });

  it("let items in messages exceed the window by a quarter; what is beyond that has to be pulled", () => {
    const { sender, receiver, grant } = link(10, 10_000);
    grant();
    sender.add(10, 10_000);
    expect(itemCost(sender.mostInMessage)).toBe(12_500);
    receiver.arrive(9000);
    sender.spend(9000);
    expect(itemCost(sender.mostInMessage)).toBe(3500);
    receiver.arrive(3500);
    expect([receiver.excessBytes(0), receiver.arrive(1)]).toEqual([0, false]);
    receiver.take(9000);
    grant();
    sender.spend(3500);
    sender.add(1, 9000);
    expect(itemCost(sender.mostInMessage)).toBe(9000);
    receiver.arrive(50_000);
    expect([receiver.excessBytes(0), receiver.excessBytes(50_000)]).toEqual([3500 + 50_000 - 12_500, 0]);
    // A window of one byte is for one item after the other, and not for long ones.
    const narrow = link(1, 1);
    narrow.sender.add(1, 1);
    expect(itemCost(narrow.sender.mostInMessage)).toBe(2049);
  });

  it("are granted again when half of the window has been taken, in items or in bytes", () => {
    const { receiver, grant } = link(10, 1000);
    grant();
    for (let i = 0; i < 6; i++) receiver.arrive(10);
    expect([1, 2, 3, 4, 5].map(() => receiver.take(10))).toEqual([false, false, false, false, true]);
    const other = link(10, 1000);
    other.grant();
    other.receiver.arrive(600);
    expect(other.receiver.take(600)).toBe(true);
  });

  it("are granted in several frames where bytes are more than a frame can say", () => {
    const { receiver, grants, grant } = link(4, 2 ** 30);
    grant();
    grants.length = 0;
    for (let i = 0; i < 2; i++) {
      receiver.arrive(2 ** 29);
      receiver.take(2 ** 32);
    }
    grant();
    expect(grants.every(([, bytes]) => bytes <= 0xffff_ffff)).toBe(true);
    expect(grants.reduce((sum, [, bytes]) => sum + bytes, 0)).toBe(2 ** 33);
    expect(grants.reduce((sum, [items]) => sum + items, 0)).toBe(2);
  });

  it("overflow when a peer grants more than any window", () => {
    const sender = new SendCredits();
    expect(sender.add(2 ** 31, 2 ** 40)).toBe(true);
    expect(sender.add(1, 0)).toBe(false);
    expect(new SendCredits().add(0, 2 ** 40 + 1)).toBe(false);
  });

  it("are conserved, never stop a stream, and bound what waits, whatever is sent and taken in whatever order", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 20 }),
        fc.integer({ min: 4096, max: 20_000 }),
        fc.array(fc.record({ takes: fc.boolean(), bytes: fc.nat(9000), lag: fc.boolean() }), {
          maxLength: 300,
        }),
        (items, bytes, steps) => {
          const { sender, receiver, grants, grant } = link(items, bytes);
          const onTheWay: number[] = [];
          const waiting: number[] = [];
          const deliver = () => {
            for (const cost of onTheWay.splice(0)) {
              expect(receiver.arrive(cost)).toBe(true);
              waiting.push(cost);
            }
          };
          const hear = () => {
            for (const [more, bytesMore] of grants.splice(0)) expect(sender.add(more, bytesMore)).toBe(true);
          };
          grant();
          for (const { takes, bytes: length, lag } of steps) {
            if (takes) {
              deliver();
              const cost = waiting.shift();
              if (cost !== undefined && receiver.take(cost)) grant();
            } else if (sender.some) {
              const cost = itemCost(length);
              sender.spend(cost);
              onTheWay.push(cost);
            }
            if (!lag) hear();
            const held = [...waiting, ...onTheWay];
            expect(held.length).toBeLessThanOrEqual(items);
            // All but the last are within the window.
            expect(held.slice(0, -1).reduce((sum, cost) => sum + cost, 0)).toBeLessThan(bytes);
          }
          // When all items have been taken and confirmed, the sender may continue.
          deliver();
          for (const cost of waiting.splice(0)) if (receiver.take(cost)) grant();
          hear();
          expect(sender.some).toBe(true);
        },
      ),
      { numRuns: 300 },
    );
  });
});
