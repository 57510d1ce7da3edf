import { bytes, clientStream, implement, service } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { openEngine } from "../matrix/pair.ts";
import { verbsDevices } from "../matrix/verbs.ts";

const Upload = service("upload.v1", { take: clientStream({ items: bytes(), output: z.number() }) });
const serve = [
  implement(Upload, {
    async take(items) {
      let count = 0;
      for await (const item of items) count += item.byteLength;
      return count;
    },
  }),
];

/** The heartbeat looks four times in this time: here after each 1.5 s. */
const heartbeatMs = 6000;
/** Far less than the time between two looks. */
const limits = { maxBodyStallMs: 100 };
/** Too long for a message. A device of the guest takes milliseconds for one, so that some are always on their way. */
const item = new Uint8Array(64 << 10);

// A file without any test would count as broken.
if (verbsDevices.length === 0) it.skip("verbs: no device is lent to the tests", () => {});

describe.each(verbsDevices)("verbs on $name", ({ host }) => {
  it("keeps a session whose long items are on their way whenever the heartbeat looks", async () => {
    const server = await openEngine({ listen: `verbs://${host}:0`, serve, heartbeatMs, limits });
    const client = await openEngine({ heartbeatMs, limits });
    const peer = await client.connect(server.urls[0] as string);
    const writer = peer.client(Upload).take.open();
    let sent = 0;
    const untilMs = performance.now() + 0.6 * heartbeatMs;
    while (performance.now() < untilMs) {
      await writer.send(item);
      sent += item.byteLength;
    }
    expect(await writer.end()).toBe(sent);
  });
});
