import { implement, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { openEngine } from "../matrix/pair.ts";
import { verbsDevices } from "../matrix/verbs.ts";
import { failure } from "../matrix/wait.ts";

// Read as libfabric is loaded, by the first engine of this file.
process.env.FI_UNIVERSE_SIZE = "3";

const Echo = service("echo.v1", { echo: unary({ input: z.number(), output: z.number() }) });
const serve = [implement(Echo, { echo: (n) => n })];

// A file without any test would count as broken.
if (verbsDevices.length === 0) it.skip("verbs: no device is lent to the tests", () => {});

describe.each(verbsDevices)("verbs on $name", ({ host }) => {
  const listen = `verbs://${host}:0`;

  it("refuses the peer that its completion queue has no room for, and says what would make room", async () => {
    const server = await openEngine({ listen, serve }, true);
    const url = server.urls[0] as string;
    const peers = [];
    for (let i = 0; i < 3; i++) peers.push(await (await openEngine({}, true)).connect(url));
    const refused = await failure((await openEngine({}, true)).connect(url));
    expect(refused).toMatchObject({ code: "resource_exhausted", origin: "remote" });
    expect(refused.message).toContain("room for 3 peers; a higher FI_UNIVERSE_SIZE");
    for (const [i, peer] of peers.entries()) expect(await peer.client(Echo).echo(i)).toBe(i);
  });

  it("connects to no more peers than that", async () => {
    const client = await openEngine({}, true);
    for (let i = 0; i < 3; i++) {
      const server = await openEngine({ listen, serve }, true);
      expect(await (await client.connect(server.urls[0] as string)).client(Echo).echo(i)).toBe(i);
    }
    const fourth = await openEngine({ listen, serve }, true);
    const refused = await failure(client.connect(fourth.urls[0] as string));
    expect(refused).toMatchObject({ code: "resource_exhausted", origin: "local" });
    expect(refused.message).toContain("FI_UNIVERSE_SIZE");
  });
});
