import { describe, expect, it } from "vitest";
import { FakePort } from "../session/connection/fake-port.test-support.ts";
import { FakeServices } from "../session/connection/fake-services.test-support.ts";
import { SessionTable } from "../session/connection/session-table.ts";
import { GrantedRegions } from "./granted-regions.ts";
import { PutNotificationTargets, putNotificationData } from "./put-notification.ts";
import { Region } from "./region.ts";
import { RegionCore } from "./region-core.ts";
import type { Access } from "./region-kind.ts";

const owner = { onRegionReleased() {} };
const region = (access: Access = "write") => new Region(new RegionCore(owner, [new Uint8Array(64)], access));

function setUp() {
  const port = new FakePort();
  port.immediateBytes = 8;
  const host = new FakeServices();
  const table = new SessionTable(host.terms());
  return { port, host, table, granted: new GrantedRegions(port, 0) };
}

const key = 0x1234_5678_9abc_def0n;

describe("a put notification that came with a put", () => {
  it("finds the region by the lower half of its grant's key, in whichever session", async () => {
    const { port, host, table, granted } = setUp();
    const others = new GrantedRegions(port, 0);
    const [here, there] = [region(), region("read_write")];
    granted.add(key, here);
    others.add(key + 1n, there);
    table.onPutNotification(port, putNotificationData(key, 2 ** 32 - 1), 64);
    table.onPutNotification(port, putNotificationData(key + 1n, 0), 1);
    expect((await here.notifications().next()).value).toEqual({ n: 2 ** 32 - 1, bytes: 64 });
    expect((await there.notifications().next()).value).toEqual({ n: 0, bytes: 1 });
    expect(host.counters.malformed).toBe(0);
    granted.delete(key);
    others.delete(key + 1n);
    expect(PutNotificationTargets.of(port).size).toBe(0);
  });

  it("tells nobody, and is counted, when it was forged or comes too late", async () => {
    const { port, host, table, granted } = setUp();
    const [mine, readable] = [region(), region("read")];
    granted.add(key, mine);
    granted.add(7n, readable);
    const forged: [bigint, number][] = [
      [putNotificationData(key + 1n, 1), 8], // no grant
      [putNotificationData(key >> 32n, 1), 8], // the upper half
      [putNotificationData(key, 1), 0], // the put wrote no bytes, or the provider does not report them
      [putNotificationData(key, 1), 65], // more bytes than the grant has
      [putNotificationData(7n, 1), 8], // the grant allows no writes
    ];
    for (const [data, bytes] of forged) table.onPutNotification(port, data, bytes);
    granted.delete(key);
    table.onPutNotification(port, putNotificationData(key, 1), 8);
    expect(host.counters.malformed).toBe(forged.length + 1);
    for (const untold of [mine, readable]) {
      const next = untold.notifications().next();
      untold.dispose();
      expect((await next).done).toBe(true);
    }
  });

  it("is lost for both where two grants have the same half, until one is over", async () => {
    const { port, host, table, granted } = setUp();
    const [one, two] = [region(), region()];
    granted.add(key, one);
    granted.add(key + (1n << 32n), two);
    table.onPutNotification(port, putNotificationData(key, 1), 8);
    expect(host.counters.malformed).toBe(1);
    for (const each of [one, two])
      await expect(each.notifications().next()).rejects.toMatchObject({ code: "resource_exhausted" });
    granted.delete(key);
    table.onPutNotification(port, putNotificationData(key, 2), 8);
    expect((await two.notifications().next()).value).toEqual({ n: 2, bytes: 8 });
    expect(host.counters.malformed).toBe(1);
  });

  it("costs ports without such puts nothing, and is malformed there", () => {
    const { host, table } = setUp();
    const port = new FakePort();
    new GrantedRegions(port, 0).add(key, region());
    expect(PutNotificationTargets.of(port).size).toBe(0);
    table.onPutNotification(port, putNotificationData(key, 1), 8);
    expect(host.counters.malformed).toBe(1);
  });
});
