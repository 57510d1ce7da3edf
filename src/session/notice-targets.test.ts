import { describe, expect, it } from "vitest";
import { Region } from "../bulk/region.ts";
import { RegionCore } from "../bulk/region-core.ts";
import type { Access } from "../bulk/region-kind.ts";
import { FakeHost } from "./fake-host.test-support.ts";
import { FakePort } from "./fake-port.test-support.ts";
import { LentRegions } from "./lent-regions.ts";
import { NoticeTargets, noticeData } from "./notice-targets.ts";
import { SessionTable } from "./session-table.ts";

const owner = { onRegionReleased() {} };
const region = (access: Access = "write") => new Region(new RegionCore(owner, [new Uint8Array(64)], access));

function setUp() {
  const port = new FakePort();
  port.immediateBytes = 8;
  const host = new FakeHost();
  const table = new SessionTable(host);
  return { port, host, table, lent: new LentRegions(port) };
}

const key = 0x1234_5678_9abc_def0n;

describe("a notice that came with a put", () => {
  it("finds the region by the lower half of its loan's key, in whichever session", async () => {
    const { port, host, table, lent } = setUp();
    const others = new LentRegions(port);
    const [here, there] = [region(), region("read_write")];
    lent.add(key, here);
    others.add(key + 1n, there);
    table.onNotice(port, noticeData(key, 2 ** 32 - 1), 64);
    table.onNotice(port, noticeData(key + 1n, 0), 1);
    expect((await here.notifications().next()).value).toEqual({ n: 2 ** 32 - 1, bytes: 64 });
    expect((await there.notifications().next()).value).toEqual({ n: 0, bytes: 1 });
    expect(host.counters.malformed).toBe(0);
    lent.delete(key);
    others.delete(key + 1n);
    expect(NoticeTargets.of(port).size).toBe(0);
  });

  it("tells nobody, and is counted, when it was forged or comes too late", async () => {
    const { port, host, table, lent } = setUp();
    const [mine, readable] = [region(), region("read")];
    lent.add(key, mine);
    lent.add(7n, readable);
    const forged: [bigint, number][] = [
      [noticeData(key + 1n, 1), 8], // no loan
      [noticeData(key >> 32n, 1), 8], // the upper half
      [noticeData(key, 1), 0], // nothing was written, or the provider does not say
      [noticeData(key, 1), 65], // more than was lent
      [noticeData(7n, 1), 8], // cannot be written
    ];
    for (const [data, bytes] of forged) table.onNotice(port, data, bytes);
    lent.delete(key);
    table.onNotice(port, noticeData(key, 1), 8);
    expect(host.counters.malformed).toBe(forged.length + 1);
    for (const untold of [mine, readable]) {
      const next = untold.notifications().next();
      untold.dispose();
      expect((await next).done).toBe(true);
    }
  });

  it("is lost for both where two loans have the same half, until one is over", async () => {
    const { port, host, table, lent } = setUp();
    const [one, two] = [region(), region()];
    lent.add(key, one);
    lent.add(key + (1n << 32n), two);
    table.onNotice(port, noticeData(key, 1), 8);
    expect(host.counters.malformed).toBe(1);
    for (const each of [one, two])
      await expect(each.notifications().next()).rejects.toMatchObject({ code: "resource_exhausted" });
    lent.delete(key);
    table.onNotice(port, noticeData(key, 2), 8);
    expect((await two.notifications().next()).value).toEqual({ n: 2, bytes: 8 });
    expect(host.counters.malformed).toBe(1);
  });

  it("costs ports without such puts nothing, and is malformed there", () => {
    const { host, table } = setUp();
    const port = new FakePort();
    new LentRegions(port).add(key, region());
    expect(NoticeTargets.of(port).size).toBe(0);
    table.onNotice(port, noticeData(key, 1), 8);
    expect(host.counters.malformed).toBe(1);
  });
});
