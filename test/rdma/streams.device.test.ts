import { bytes, clientStream, implement, service } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { exact } from "../matrix/exact-limits.ts";
import { pair } from "../matrix/pair.ts";
import { providers } from "../matrix/providers.ts";

const Upload = service("upload.v1", { take: clientStream({ items: bytes(), output: z.number() }) });
const upload = implement(Upload, {
  async take(items) {
    let count = 0;
    for await (const item of items) count += item.byteLength;
    return count;
  },
});

/** The heartbeat looks each quarter of this time: once while the stream of this test is open. */
const heartbeatMs = 20_000;
/** Far less than the time between two looks, with what 128 KiB/s give to a window of items. */
const limits = exact({ maxBodyStallMs: 100 });
/** Too long for a message. A device of the guest takes milliseconds for one, so that some are always on their way. */
const item = new Uint8Array(64 << 10);

const verbs = providers.filter(({ scheme }) => scheme === "verbs");

// A file without any test would count as broken.
if (verbs.length === 0) it.skip("verbs: no device is lent to the tests", () => {});

describe.each(verbs)("streams over $name", (provider) => {
  it("keeps a session whose long items are on their way when the heartbeat looks", async () => {
    const options = { heartbeatMs, limits };
    const { api } = await pair(provider, [upload], { server: options, client: options });
    const writer = api(Upload).take.open();
    let sent = 0;
    const untilMs = performance.now() + 0.3 * heartbeatMs;
    while (performance.now() < untilMs) {
      await writer.send(item);
      sent += item.byteLength;
    }
    expect(await writer.end()).toBe(sent);
  });
});
