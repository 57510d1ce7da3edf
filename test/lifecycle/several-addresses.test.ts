import { lookup } from "node:dns/promises";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { implement, service, unary } from "cinnabar";
import { afterEach, expect, it, onTestFinished, vi } from "vitest";
import { z } from "zod";
import { openEngine } from "../matrix/pair.ts";
import { failure } from "../matrix/wait.ts";

const Who = service("who.v1", { name: unary({ output: z.string() }) });
const who = implement(Who, { name: () => "here" });

vi.mock("node:dns/promises", async (original) => ({
  ...(await original<typeof import("node:dns/promises")>()),
  lookup: vi.fn(),
}));
afterEach(() => vi.mocked(lookup).mockReset());

/** What the name `files.test` stands for. */
function stand(...addresses: string[]): void {
  const all = addresses.map((address) => ({ address, family: address.includes(":") ? 6 : 4 }));
  vi.mocked(lookup).mockResolvedValue(all as never);
}

const named = (url: string) => url.replace(/:\/\/.*:/, "://files.test:");

it.each([
  ["net", "127.0.0.1", ["::1", "127.0.0.1"]],
  ["net", "[::1]", ["127.0.0.1", "::1"]],
  ["net", "127.0.0.3", ["127.0.0.1", "127.0.0.2", "127.0.0.3"]],
  ["tcp", "127.0.0.1", ["::1", "127.0.0.1"]],
  ["tcp", "127.0.0.3", ["127.0.0.1", "127.0.0.2", "127.0.0.3"]],
])("a peer over %s that listens at %s alone is found among %j", async (scheme, host, addresses) => {
  const server = await openEngine({ listen: `${scheme}://${host}:0`, serve: [who] }, true);
  const client = await openEngine({}, true);
  stand(...addresses);
  const peer = await client.connect(named(server.urls[0] as string));
  expect(await peer.client(Who).name()).toBe("here");
  const balanced = await client.connect([named(server.urls[0] as string)]);
  expect(await balanced.client(Who).name()).toBe("here");
});

it("a peer is found behind an address that takes connections and says nothing", async () => {
  const server = await openEngine({ listen: "net://127.0.0.1:0", serve: [who] }, true);
  const { port } = new URL(server.urls[0] as string);
  const mute = createServer(() => {}).listen(Number(port), "127.0.0.2");
  await once(mute, "listening");
  onTestFinished(() => void mute.close());
  const client = await openEngine({ connectTimeoutMs: 60_000 }, true);
  stand("127.0.0.2", "127.0.0.1");
  const peer = await client.connect(`net://files.test:${port}`);
  expect(await peer.client(Who).name()).toBe("here");
  expect(server.stats().sessions).toBe(1);
});

it.each(["net", "tcp"])("the error over %s names each address that was tried", async (scheme) => {
  const free = createServer().listen(0, "127.0.0.1");
  await once(free, "listening");
  const { port } = free.address() as AddressInfo;
  await new Promise((resolve) => free.close(resolve));
  const client = await openEngine({}, true);
  stand("127.0.0.1", "127.0.0.2");
  expect(await failure(client.connect(`${scheme}://files.test:${port}`))).toMatchObject({
    code: "unavailable",
    message: expect.stringMatching(
      /127\.0\.0\.1: .*nobody listens there; 127\.0\.0\.2: .*nobody listens there/,
    ),
  });
});

it.each([
  ["127.0.0.1", "[::ffff:127.0.0.1]"],
  ["127.0.0.1", "[::ffff:7f00:1]"],
  ["127.0.0.1", "[0:0:0:0:0:ffff:127.0.0.1]"],
  ["[::1]", "[::1%25lo]"],
  ["[::1]", "[::1%lo]"],
])("a peer that listens at %s is reached at %s, over tcp and net", async (host, other) => {
  for (const scheme of ["tcp", "net"]) {
    const server = await openEngine({ listen: `${scheme}://${host}:0`, serve: [who] }, true);
    const client = await openEngine({}, true);
    const peer = await client.connect((server.urls[0] as string).replace(host, other));
    expect(await peer.client(Who).name()).toBe("here");
  }
});
