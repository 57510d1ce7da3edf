import { lookup } from "node:dns/promises";
import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { createServer, isIP } from "node:net";
import { networkInterfaces } from "node:os";
import { type Engine, implement, RpcError, service, unary } from "cinnabar";
import { describeFabrics } from "cinnabar/inspect";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { formatHostUrl, parseUrl } from "../../src/fabric/libfabric/url.ts";
import { root, userPages } from "../docs/pages.test-support.ts";
import { openEngine } from "../matrix/pair.ts";
import { namePrefix } from "../matrix/providers.ts";
import { isSecured } from "../matrix/secured.ts";
import { verbsDevices } from "../matrix/verbs.ts";

// The README and the guide show these URLs. A reader who copies one must get that address and that port.

const Echo = service("echo.v1", { echo: unary({ input: z.string(), output: z.string() }) });
const echo = implement(Echo, { echo: (text) => text });

/** Up to a mark that ends a URL in prose or code. Those with `…` or `${…}` in them are no URLs yet. */
const written = /\b(mem|shm|tcp|verbs|efa|cxi|opx|psm2|psm3|ucx):\/\/[^\s"'`()|,;]+/g;

/** The form of a URL of the pages: another machine's address and another user's device become this machine's. */
function formOf(url: string): string {
  const [scheme, rest] = url.split("://") as [string, string];
  if (scheme === "mem" || scheme === "shm") return `${scheme}://name`;
  const end = rest.lastIndexOf(":");
  const [host, port] = end < 0 ? [rest, ""] : [rest.slice(0, end), rest.slice(end + 1)];
  if (scheme !== "tcp" && scheme !== "verbs") return port === "service" ? `${scheme}://node:1` : url;
  const isOwn = ["0.0.0.0", "[::]", "[::1]", "127.0.0.1", "*"].includes(host);
  const form = isOwn ? host : isIP(host) === 4 ? "address" : host;
  return `${scheme}://${form}:${port === "0" ? "0" : "7400"}`;
}

const urls = userPages
  .flatMap((page) => readFileSync(root + page, "utf8").match(written) ?? [])
  .map((url) => url.replace(/[.:]+$/, ""))
  .filter((url) => !/[…$<>]/.test(url) && !/^(tcp|verbs):\/\/[^:[]*$/.test(url));
const forms = [...new Set(urls.map(formOf))].sort();
const formsOf = (...schemes: string[]) => forms.filter((form) => schemes.includes(form.split(":")[0] ?? ""));

/** A TCP port at which nobody listens. */
function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer().once("error", reject);
    server.listen(0, () => {
      const { port } = server.address() as { port: number };
      server.close(() => resolve(port));
    });
  });
}

/** Opens what `urlAt` gives for a free port. Another process may take the port first, and then another is tried. */
async function openAt(urlAt: (port: number) => string): Promise<{ asked: string; engine: Engine }> {
  for (let left = 5; ; left--) {
    const asked = urlAt(await freePort());
    try {
      return { asked, engine: await openEngine({ listen: asked, serve: [echo] }) };
    } catch (error) {
      if (left === 0 || !(error instanceof RpcError) || error.code !== "already_exists") throw error;
    }
  }
}

/** Where this process listens over TCP, as the kernel has it (proc(5), /proc/net/tcp). */
function kernelListeners(): string[] {
  const own = new Set(
    readdirSync("/proc/self/fd").map((fd) => {
      try {
        return readlinkSync(`/proc/self/fd/${fd}`);
      } catch {
        return ""; // that of the directory itself
      }
    }),
  );
  return ["tcp", "tcp6"].flatMap((table) =>
    readFileSync(`/proc/self/net/${table}`, "utf8")
      .split("\n")
      .map((line) => line.trim().split(/\s+/))
      .filter(([, , , state, , , , , , inode]) => state === "0A" && own.has(`socket:[${inode}]`))
      .map(([, local]) => {
        const [address = "", port = ""] = (local ?? "").split(":");
        return `${hostOf(address)} ${Number.parseInt(port, 16)}`;
      }),
  );
}

/** An address of the kernel's table: words of four bytes, each a number in the order of a little-endian machine. */
function hostOf(words: string): string {
  const bytes = Buffer.from(words, "hex").swap32();
  if (bytes.byteLength === 4) return bytes.join(".");
  const groups = Array.from({ length: 8 }, (_, i) => bytes.readUInt16BE(2 * i).toString(16));
  // In the short form.
  return new URL(`http://[${groups.join(":")}]`).hostname.slice(1, -1);
}

async function answersAt(url: string): Promise<void> {
  const client = await openEngine();
  const api = (await client.connect(url, { timeoutMs: 30_000 })).client(Echo, { timeoutMs: 30_000 });
  expect(await api.echo(url)).toBe(url);
}

/** Opens the URL, compares `engine.urls` and the kernel's listeners with what was asked, and makes a call. */
async function opensOverTcp(form: string): Promise<void> {
  const { host, port: shown } = parseUrl(form);
  const here = isIP(host) === 0 ? (host === "address" ? "127.0.0.1" : "localhost") : host;
  const before = kernelListeners();
  const { asked, engine } = await openAt((port) => formatHostUrl("tcp", here, shown === 0 ? 0 : port));
  const url = engine.urls[0] as string;
  const { port } = parseUrl(url);
  if (shown !== 0) expect(engine.urls).toEqual([asked]);
  else expect(url).toBe(formatHostUrl("tcp", here, port));
  const bound = isIP(here) === 0 ? (await lookup(here)).address : here;
  expect(kernelListeners().filter((one) => !before.includes(one))).toEqual([`${bound} ${port}`]);
  const reached = { "0.0.0.0": "127.0.0.1", "::": "::1" }[here] ?? here;
  await answersAt(formatHostUrl("tcp", reached, port));
}

/** Likewise, with a device, an interface and an address of this machine. */
async function opensOverVerbs(form: string): Promise<void> {
  const { host, port: shown } = parseUrl(form);
  const address = verbsDevices[0]?.host as string;
  const device = describeFabrics().devices.find(({ addresses }) => addresses.includes(address));
  const names: Record<string, string | undefined> = {
    "*": "*",
    mlx5_0: device?.device,
    eth0: device?.ports[0]?.interfaces[0]?.name,
  };
  const here = names[host] ?? address;
  const { asked, engine } = await openAt((port) => formatHostUrl("verbs", here, shown === 0 ? 0 : port));
  for (const url of engine.urls) {
    const { host: bound, port } = parseUrl(url);
    if (shown !== 0) expect(port).toBe(parseUrl(asked).port);
    else expect(port).toBeGreaterThan(0);
    if (here !== "*") expect(bound).toBe(address);
    await answersAt(url);
  }
}

const hasSix = Object.values(networkInterfaces()).some((all) =>
  all?.some(({ address }) => address === "::1"),
);

describe("a URL that README or guide shows", () => {
  it("is of a form that is opened below", () => {
    const common = [
      "shm://name",
      "tcp://0.0.0.0:7400",
      "tcp://[::]:7400",
      "tcp://127.0.0.1:0",
      "verbs://*:7400",
    ];
    expect(forms).toEqual(expect.arrayContaining(common));
  });

  it.each(formsOf("tcp"))("listens at the address and port of %s", async (form) => {
    if (!form.includes("[") || hasSix) await opensOverTcp(form);
    else expect(parseUrl(form).port).toBe(7400);
  });

  it.each(formsOf("shm", "mem"))("listens at the name of %s", async (form) => {
    if (isSecured && form.startsWith("mem:")) return; // nothing is sealed over mem
    const asked = form.replace("name", `${namePrefix}documented`);
    const engine = await openEngine({ listen: asked, serve: [echo] });
    expect(engine.urls).toEqual([asked]);
    await answersAt(asked);
  });

  // Without a device nothing can be opened there. The guest of `npm run test:rdma` has some.
  it.each(formsOf("verbs"))("is read, and over verbs listens at the address and port of %s", async (form) => {
    expect(parseUrl(form).scheme).toBe("verbs");
    if (verbsDevices.length > 0) await opensOverVerbs(form);
  });

  // No machine at hand has the hardware; test/devices/other-fabrics.apart.test.ts has more.
  it.each(formsOf("psm3", "psm2", "efa", "cxi", "opx", "ucx"))("is read: %s", (form) => {
    expect(parseUrl(form).name).toBe("");
  });
});
