import { Engine, implement, service, unary } from "cinnabar";
import { afterAll, afterEach, expect, it } from "vitest";
import { z } from "zod";
import { Authority } from "./support/authority.ts";
import { secured } from "./support/engines.ts";
import { anyUrl, PortOnPath } from "./support/fabric.ts";

const ca = Authority.create("tampered-authority");
const Echo = service("echo.v1", {
  echo: unary({ input: z.object({ text: z.string() }), output: z.object({ text: z.string() }) }),
});
const plainSend = PortOnPath.prototype.send;
const nobody = { onSent: () => {} };
const sealedMagic = 0xcc;
/** A session that a busy machine loses takes the injected messages with it. */
const patience = { heartbeatMs: 20_000, connectTimeoutMs: 30_000 };
const engines: Engine[] = [];

afterEach(async () => {
  PortOnPath.prototype.send = plainSend;
  await Promise.all(engines.splice(0).map((engine) => engine.close()));
});
afterAll(() => ca.remove());

it("messages that somebody changes or repeats on the way are dropped, and no call notices", async () => {
  const server = await Engine.open({
    ...patience,
    listen: anyUrl,
    serve: [implement(Echo, { echo: (input) => input })],
    security: secured(ca, "server.example"),
  });
  const client = await Engine.open({ ...patience, security: secured(ca, "client.example") });
  engines.push(client, server);
  const peer = (await client.connect(server.urls[0] as string)).client(Echo, { timeoutMs: 30_000 });

  const sum = (name: "messagesForged" | "messagesRepeated" | "strays") =>
    engines.reduce((all, engine) => all + engine.stats().counters[name], 0);
  // A slow machine says hello twice, which has come when a call has been answered.
  await peer.echo({ text: "first" });
  const straysBefore = sum("strays");
  let changed = 0;
  let repeated = 0;
  let at = 24;
  // Each message follows a copy of it with one changed byte, each another, and precedes itself once more.
  PortOnPath.prototype.send = function (address, slot, bytes, listener) {
    const message = Uint8Array.from(this.slab.subarray(slot, slot + bytes));
    const inject = (copy: Uint8Array) => {
      const other = this.takeSlot();
      if (other < 0) return 0;
      this.slab.set(copy, other);
      plainSend.call(this, address, other, bytes, nobody);
      return 1;
    };
    if (message[0] === sealedMagic) {
      const copy = Uint8Array.from(message);
      at = at + 1 < bytes ? at + 1 : 24;
      copy[at] = (copy[at] as number) ^ (1 << (at & 7));
      changed += inject(copy);
    }
    plainSend.call(this, address, slot, bytes, listener);
    if (message[0] === sealedMagic) repeated += inject(message);
  };
  for (let i = 0; i < 50; i++) {
    const texts = Array.from({ length: 8 }, (_, n) => `${i}.${n}`.repeat(i + 1));
    const answers = await Promise.all(texts.map((text) => peer.echo({ text })));
    expect(answers.map(({ text }) => text)).toEqual(texts);
  }
  PortOnPath.prototype.send = plainSend;
  // Behind all that was injected.
  await peer.echo({ text: "last" });
  expect(changed).toBeGreaterThan(50);
  await expect.poll(() => sum("messagesForged"), { timeout: 20_000 }).toBe(changed);
  await expect.poll(() => sum("messagesRepeated"), { timeout: 20_000 }).toBe(repeated);
  expect(sum("strays")).toBe(straysBefore);
  for (const engine of engines)
    expect(engine.stats()).toMatchObject({ sessions: 1, counters: { sessionsLost: 0, malformed: 0 } });
});
