import { bulk, implement, service, unary } from "cinnabar";
import { describeFabrics } from "cinnabar/inspect";
import { afterEach, describe, expect, it, vi } from "vitest";
import { z } from "zod";
import { openEngine } from "../matrix/pair.ts";
import { failure } from "../matrix/wait.ts";

const Store = service("store.v1", {
  echo: unary({ input: z.object({ text: z.string() }), output: z.object({ text: z.string() }) }),
  fill: unary({ input: z.object({ into: bulk("write") }), output: z.object({ bytes: z.int() }) }),
});
const store = implement(Store, {
  echo: ({ text }) => ({ text }),
  async fill({ into }, call) {
    return { bytes: await call.put(new Uint8Array(into.byteLength).fill(7), into) };
  },
});

const schemes = ["efa", "cxi", "opx", "psm2", "psm3", "ucx"] as const;

/**
 * libfabric's own over sockets resolves nodes and services, too, and is everywhere: it takes the place of those that
 * want hardware.
 */
const standIn = describeFabrics().fabrics.find(({ scheme, available }) => scheme === "tcp" && available)
  ?.provider as string;

afterEach(() => vi.unstubAllEnvs());

describe.each(schemes)("%s://", (scheme) => {
  const report = describeFabrics().fabrics.find((fabric) => fabric.scheme === scheme);

  it.skipIf(report?.available === true)("says why it cannot be used, and what to do", async () => {
    expect(report?.reason).toMatch(
      new RegExp(
        `^(libfabric [0-9.]+ here has no provider ${scheme}: .*CINNABAR_LIBFABRIC|provider ${scheme} (finds no device here: it needs |lacks |cannot be used: ))`,
      ),
    );
    for (const url of [`${scheme}://*:0`, `${scheme}://10.0.0.1:7400`]) {
      const error = await failure(openEngine({ listen: url }));
      expect(error).toMatchObject({ code: "unimplemented", origin: "fabric" });
      expect(error.message).toBe(`[unimplemented] cannot open ${url}: ${report?.reason}`);
    }
    const client = await openEngine();
    const unconnected = await failure(client.connect(`${scheme}://~0011`));
    expect(unconnected.message).toContain(report?.reason);
  });
});

describe("a fabric that libfabric resolves addresses for", () => {
  it("carries calls and transfers, in a provider's place", async () => {
    vi.stubEnv("CINNABAR_PROVIDER", standIn);
    const server = await openEngine({ listen: "ucx://127.0.0.1:0", serve: [store] });
    const [url] = server.urls as [string];
    expect(url).toMatch(/^ucx:\/\/127\.0\.0\.1:\d+$/);
    const client = await openEngine();
    const api = (await client.connect(url)).client(Store);
    expect(await api.echo({ text: "hello" })).toEqual({ text: "hello" });
    using region = client.expose(new Uint8Array(100_000), { access: "write" });
    expect(await api.fill({ into: region })).toEqual({ bytes: 100_000 });
  });

  it("is reached by a raw address, too", async () => {
    vi.stubEnv("CINNABAR_PROVIDER", standIn);
    const server = await openEngine({ listen: "psm3://127.0.0.1:0", serve: [store] });
    const port = Number(new URL((server.urls[0] as string).replace("psm3", "http")).port);
    // A sockaddr_in, which is what this provider's addresses are.
    const raw = Buffer.alloc(16);
    raw.writeUInt16LE(2);
    raw.writeUInt16BE(port, 2);
    raw.set([127, 0, 0, 1], 4);
    const client = await openEngine();
    const api = (await client.connect(`psm3://~${raw.toString("hex")}`)).client(Store);
    expect(await api.echo({ text: "raw" })).toEqual({ text: "raw" });
    // libfabric is not told how long an address is, so a short one must not reach it.
    expect((await failure(client.connect("psm3://~0200"))).message).toContain("fi_av_insert");
  });

  it("lists what a provider lacks", async () => {
    vi.stubEnv("CINNABAR_PROVIDER", "udp");
    const error = await failure(openEngine({ listen: "opx://127.0.0.1:0" }));
    expect(error.code).toBe("unimplemented");
    // A libfabric may be built without it.
    if (error.message.includes("has no provider udp")) return;
    expect(error.message).toContain("provider udp lacks reliable datagrams (FI_EP_RDM)");
    expect(error.message).toContain("(FI_RMA)");
  });

  it("cannot be connected to at any node", async () => {
    const client = await openEngine();
    await expect(client.connect("efa://*:1")).rejects.toThrow(TypeError);
  });
});
