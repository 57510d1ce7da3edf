import { expect, it } from "vitest";
import { open as openReceiver } from "../../bench/bulk/parties/net-receiver.ts";
import { open as openSender } from "../../bench/bulk/parties/net-sender.ts";

const bytes = 4096;

it.each(["tcp", "unix"])("a receiver over %s may connect before its sender prepares", async (transport) => {
  const sender = await openSender(transport);
  const receiver = await openReceiver(transport, await sender.address());
  try {
    for (let size = bytes; size <= 2 * bytes; size *= 2) {
      await receiver.prepare(size, 1);
      // A turn in which the sender's server hears of the connections.
      await new Promise(setImmediate);
      await sender.prepare(size, 1);
      expect((await sender.measure("in place", 1, 1)).transfers).toBeGreaterThan(0);
    }
  } finally {
    await receiver.close();
    await sender.close();
  }
});
