import { afterEach, expect, it } from "vitest";
import { Child, type ChildOptions } from "./support/child.ts";
import { endAllPeers } from "./support/peers.ts";

afterEach(endAllPeers);

/**
 * libfabric's shared memory has no descriptor to wait on, and is everywhere: it takes the place of fabrics that want
 * hardware.
 */
const polled: ChildOptions = { env: { CINNABAR_PROVIDER: "shm" } };

async function start(): Promise<{ readonly server: Child; readonly client: Child }> {
  const server = new Child("server", { listen: "efa://*:0" }, polled);
  const { urls } = await server.report("listening");
  const client = new Child("client", { url: urls[0], holds: false }, polled);
  if (`${server.pid}`.length === `${client.pid}`.length) return { server, client };
  // The provider's addresses contain process ids, and an engine refuses an address of another length than its own.
  await Promise.all([server.destroy(), client.destroy()]);
  return start();
}

it("an idle engine whose provider has no descriptor sleeps, and wakes for a call", async () => {
  const { server, client } = await start();
  await client.report("connected");
  // An engine that polled without a pause would take all of a processor.
  expect(await server.ask<number>("idleShare", 1000)).toBeLessThan(0.2);
  expect(await client.ask("echo", { token: "wake" })).toMatchObject({ token: "wake" });
});
