import { describe, expect, it } from "vitest";
import { IncomingCall } from "../call/incoming-call.ts";
import { putNotificationData } from "../memory/put-notification.ts";
import { RemoteRegion } from "../memory/remote-region.ts";
import { open } from "../session/calls/scripted-session.test-support.ts";
import { builtin } from "../wire/builtin.ts";
import { transfer } from "./transfer.ts";
import type { PutOptions } from "./transfer-options.ts";

const key = 0xfeed_0000_8000_0001n;

/** A put of so many bytes into a region of these segments, with the given ports of both sides. */
function setUp({ ours = 8, theirs = 8, segments = [10_000] } = {}) {
  const { port, session, exchange } = open({}, { immediateBytes: theirs });
  port.immediateBytes = ours;
  const call = new IncomingCall({ takeOutcome() {} }, 1 << 20, 0);
  const described = segments.map((bytes, index) => ({
    key: key + BigInt(index),
    address: 0n,
    bytes,
  }));
  const bytes = segments.reduce((sum, one) => sum + one, 0);
  const remote = new RemoteRegion(call, { bytes, access: 2, segments: described });
  const put = async (length: number, options: PutOptions, to = remote) => {
    const done = transfer("put", exchange, call, to, new Uint8Array(length), options);
    done.catch(() => {});
    // Further chunks are posted when these have ended.
    for (let i = 0; i < port.transfers.length; i++) port.transfers[i]?.settle(0);
    await new Promise(setImmediate);
    session.flush();
    const asked = port.frames.filter(({ method }) => method === builtin.putNotification).length;
    return { done, notifications: port.transfers.map(({ notification }) => notification), asked };
  };
  return { port, remote, put };
}

describe("a put that tells the owner", () => {
  it("carries the put notification itself when it is one operation, and has ended with it", async () => {
    const { put } = setUp();
    const { done, notifications, asked } = await put(10_000, { notify: 7 });
    expect(await done).toBe(10_000);
    expect([notifications, asked]).toEqual([[0x8000_0001_0000_0007n], 0]);
    expect(notifications).toEqual([putNotificationData(key, 7)]);
  });

  it("names the grant, not the segment or slice it goes to", async () => {
    const { put, remote } = setUp({ segments: [100, 100] });
    const { notifications } = await put(50, { notify: 2 ** 32 - 1 }, remote.slice(120, 60));
    expect(notifications).toEqual([0x8000_0001_ffff_ffffn]);
  });

  it.each([
    ["this side's provider carries none", { ours: 0 }, 100, {}, 1],
    ["the owner's provider does not say how long they are", { theirs: 0 }, 100, {}, 1],
    ["it is several chunks", {}, 10_000, { chunkBytes: 4096 }, 3],
    ["it goes to several places", { segments: [50, 50] }, 100, {}, 1],
    ["the owner would be told before checksums are compared", {}, 100, { checksum: "crc32c" }, 1],
  ] as const)("sends a message when %s", async (_, how, bytes, options, chunks) => {
    const { put } = setUp(how as { ours?: number });
    const { notifications, asked } = await put(bytes, { ...options, notify: 1 });
    expect(notifications).toEqual(new Array(chunks).fill(undefined));
    expect(asked).toBe("checksum" in options ? 0 : 1);
  });

  it("carries nothing when nobody is to be told", async () => {
    const { put } = setUp();
    const { done, notifications, asked } = await put(10, {});
    expect([await done, notifications, asked]).toEqual([10, [undefined], 0]);
  });

  it("does not end well when the put is refused", async () => {
    const { port, put } = setUp();
    const settle = port.transfer.bind(port);
    port.transfer = (op, address, extents, owner, notification) => {
      settle(op, address, extents, { onTransferred: () => owner.onTransferred(266, 0) }, notification);
    };
    const { done, asked } = await put(10, { notify: 1 });
    await expect(done).rejects.toMatchObject({ name: "RpcError" });
    expect(asked).toBe(0);
  });
});
