import { expect, it } from "vitest";
import { Progress } from "../fabric/progress.ts";
import { hold, registrations } from "../memory/registration-cache.ts";
import { Ports } from "./ports.ts";

it("ports that close keep nothing registered, not even what a transfer under way held", async () => {
  const ports = new Ports(new Progress());
  await ports.listen("mem://ports-that-close");
  const [port] = ports.all;
  if (port === undefined) expect.fail("no port");
  const memory = new Uint8Array(64);
  const held = hold(port, memory);
  const extent = { local: held.memory, offset: 0, bytes: 64, key: 1n, remote: 0n };
  port.transfer("read", 7, [extent], { onTransferred: () => held.release() });
  ports.close();
  expect(registrations(port)).toMatchObject({ held: 0, idle: 0, idleBytes: 0 });
  expect(port.gauges()).toMatchObject({ transfers: 0, regions: 0 });
});
