import { createSocket } from "node:dgram";
import { afterEach, expect, it, vi } from "vitest";
import { encode } from "../detector/codec.ts";
import type { DetectorEvent } from "../detector/events.ts";
import { resolveOptions } from "../detector/options.ts";
import { Roster } from "../detector/roster.ts";
import { Driver } from "./driver.ts";
import { hashOf } from "./group-hash.ts";
import { Seal } from "./seal.ts";
import { openUdp } from "./udp-transport.ts";

const group = hashOf("test");
const key = new Uint8Array(32).fill(7);
/** Each file and run has another network of 127.0.0.0/8. */
const network = `127.${1 + (process.pid % 250)}.${Math.floor(Math.random() * 250)}`;
const addressOf = (id: number) => `${network}.${id + 1}:7947`;
const roster = new Roster([0, 1, 2].map((id) => ({ id, addresses: [addressOf(id)] })));
const detector = resolveOptions({ periodMs: 50 });

const running: Driver[] = [];

afterEach(async () => {
  await Promise.all(running.splice(0).map((driver) => driver.close()));
});

async function start(self: number, withKey?: Uint8Array, onEvent: (event: DetectorEvent) => void = () => {}) {
  const seal = withKey && new Seal(withKey);
  const driver = await Driver.start({ self, roster, detector, group, seal, onEvent }, openUdp);
  running.push(driver);
  return driver;
}

const soon = { timeout: 30_000, interval: 5 };

async function send(bytes: Uint8Array): Promise<void> {
  const socket = createSocket("udp4");
  await new Promise((resolve) => socket.send(bytes, 7947, `${network}.1`, resolve));
  await new Promise<void>((resolve) => socket.close(() => resolve()));
}

it("members with one key hear each other over UDP, and one that leaves is known to have left", async () => {
  const left = vi.fn();
  const [first, second] = [
    await start(0, key, (event) => event.type === "status" && event.status === "left" && left(event.member)),
    await start(1, key),
  ];
  await start(2, key);
  await vi.waitFor(
    () => expect(Math.min(first.stats.received, second.stats.received)).toBeGreaterThan(5),
    soon,
  );
  await second.leave();
  await vi.waitFor(() => expect(left.mock.calls).toEqual([[1]]), soon);
  expect(first.stats).toMatchObject({ refused: { malformed: 0, foreign: 0, unauthentic: 0 } });
});

it("bytes that are no message, and messages of other groups, are refused and counted", async () => {
  const driver = await start(0);
  const ping = {
    kind: "ping",
    from: 1,
    to: 0,
    incarnation: 0,
    status: "alive",
    updates: [],
    sequence: 1,
  } as const;
  await send(Uint8Array.of(1, 2, 3));
  await send(encode(hashOf("other"), ping));
  await send(new Uint8Array(2000));
  await vi.waitFor(
    () => expect(driver.stats.refused).toEqual({ malformed: 2, foreign: 1, unauthentic: 0 }),
    soon,
  );
  expect(driver.stats.received).toBe(0);
  await send(encode(group, ping));
  await vi.waitFor(() => expect(driver.stats.received).toBe(1), soon);
});

it("messages without the tag of the key are refused and counted", async () => {
  const driver = await start(0, key);
  const dead = { member: 0, status: "dead", incarnation: 0 } as const;
  const lie = { kind: "gossip", from: 1, to: 0, incarnation: 0, status: "alive", updates: [dead] } as const;
  await send(encode(group, lie));
  await send(new Seal(new Uint8Array(32)).close(encode(group, lie)));
  await send(new Uint8Array(3));
  await vi.waitFor(() => expect(driver.stats.refused.unauthentic).toBe(3), soon);
  expect(driver.stats.received).toBe(0);
});

it("an address that is taken is an error", async () => {
  await start(0);
  await expect(start(0)).rejects.toThrow("EADDRINUSE");
});
