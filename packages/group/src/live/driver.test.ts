import { createSocket } from "node:dgram";
import { afterEach, describe, expect, it, vi } from "vitest";
import type { DetectorEvent } from "../detector/detector.ts";
import { encode } from "../detector/message.ts";
import { Roster } from "../detector/opinions.ts";
import { resolveDetectorOptions } from "../detector/options.ts";
import { Seal } from "./datagrams.ts";
import { Driver } from "./driver.ts";

/** Sends bytes to an address, as a process that is not a detector. */
async function send(to: string, bytes: Uint8Array): Promise<void> {
  const socket = createSocket("udp4");
  const [ip, port] = to.split(":");
  await new Promise((resolve) => socket.send(bytes, Number(port), ip, resolve));
  await new Promise<void>((resolve) => socket.close(() => resolve()));
}

const group = 0x7e57;
const key = new Uint8Array(32).fill(7);
/** Each file and run has another network of 127.0.0.0/8. */
const network = `127.${1 + (process.pid % 250)}.${Math.floor(Math.random() * 250)}`;
const detector = resolveDetectorOptions({ periodMs: 50 });
const soon = { timeout: 30_000, interval: 5 };

describe("a driver", () => {
  const addresses = [1, 2, 3].map((host) => `${network}.${host}:7947`) as [string, string, string];
  const roster = new Roster(addresses.map((address, id) => ({ id, addresses: [address] })));
  const running: Driver[] = [];

  afterEach(async () => {
    await Promise.all(running.splice(0).map((driver) => driver.close()));
  });

  async function start(
    self: number,
    withKey?: Uint8Array,
    onEvent: (event: DetectorEvent) => void = () => {},
  ) {
    const seal = withKey && new Seal(withKey);
    const driver = await Driver.start({ self, roster, detector, group, seal, onEvent });
    running.push(driver);
    return driver;
  }

  it("lets members with one key hear each other, and one that leaves is known to have left", async () => {
    const left = vi.fn();
    const [first, second] = [
      await start(
        0,
        key,
        (event) => event.type === "status" && event.status === "left" && left(event.member),
      ),
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

  it("refuses and counts bytes that are no message, and messages of other groups", async () => {
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
    await send(addresses[0], Uint8Array.of(1, 2, 3));
    await send(addresses[0], encode(group + 1, ping));
    await send(addresses[0], new Uint8Array(520));
    await vi.waitFor(
      () => expect(driver.stats.refused).toEqual({ malformed: 2, foreign: 1, unauthentic: 0 }),
      soon,
    );
    expect(driver.stats.received).toBe(0);
    await send(addresses[0], encode(group, ping));
    await vi.waitFor(() => expect(driver.stats.received).toBe(1), soon);
  });

  it("refuses and counts messages without the tag of the key", async () => {
    const driver = await start(0, key);
    const dead = { member: 0, status: "dead", incarnation: 0 } as const;
    const lie = { kind: "gossip", from: 1, to: 0, incarnation: 0, status: "alive", updates: [dead] } as const;
    await send(addresses[0], encode(group, lie));
    await send(addresses[0], new Seal(new Uint8Array(32)).close(encode(group, lie)));
    await send(addresses[0], new Uint8Array(3));
    await vi.waitFor(() => expect(driver.stats.refused.unauthentic).toBe(3), soon);
    expect(driver.stats.received).toBe(0);
  });

  it("has an error for an address that is taken", async () => {
    await start(0);
    await expect(start(0)).rejects.toThrow("EADDRINUSE");
  });

  it("hears the successor of a member at the same address", async () => {
    const [first, second] = [await start(0), await start(1)];
    await vi.waitFor(() => expect(first.stats.received).toBeGreaterThan(5), soon);
    await second.close();
    const successor = await start(1);
    await vi.waitFor(
      () => expect(successor.stats.probes - successor.stats.failedProbes).toBeGreaterThan(5),
      soon,
    );
  });
});
