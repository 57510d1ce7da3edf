import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { connect, createServer, type Socket } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { makeTlsKey, memoryDevice, NvmeHost, NvmeTarget } from "../src/index.ts";
import { discoveryNqn } from "../src/nvme/command.ts";
import { type TlsKey, tlsKeyField } from "../src/tls/key.ts";
import { type IdentityVersion, preSharedKey } from "../src/tls/pre-shared-key.ts";

// OpenSSL's own client and server beside the target and the host: nothing of Node's TLS is on their side.

const nqn = "nqn.2026-11.test:disk";
const hostNqn = "nqn.2026-11.test:host";
const key = makeTlsKey();
const suite = "TLS_AES_128_GCM_SHA256";
const ends: (() => unknown)[] = [];

afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

function keyArguments(subsystemNqn: string, version: IdentityVersion = 0): string[] {
  const parsed = tlsKeyField.resolve("test", "key", key) as TlsKey;
  const { identity, psk } = preSharedKey(parsed, { hostNqn, subsystemNqn }, version) ?? { identity: "" };
  return ["-psk_identity", identity, "-psk", psk?.toString("hex") ?? ""];
}

function openssl(args: readonly string[]): ChildProcessWithoutNullStreams {
  const child = spawn("openssl", args);
  const over = once(child, "close");
  child.stdin.on("error", () => {});
  ends.push(() => {
    child.kill();
    return over;
  });
  return child;
}

/** Listens. Each connection goes through a client of OpenSSL to the target. */
async function throughClient(target: NvmeTarget, args: readonly string[]): Promise<number> {
  const sockets = new Set<Socket>();
  const proxy = createServer((socket) => {
    sockets.add(socket.on("error", () => {}));
    const to = ["-connect", `127.0.0.1:${target.address.port}`];
    const client = openssl(["s_client", "-quiet", "-nocommands", ...to, ...args]);
    socket.pipe(client.stdin);
    client.stdout.pipe(socket);
    socket.on("close", () => client.stdin.end());
  });
  await once(proxy.listen(0, "127.0.0.1"), "listening");
  ends.push(() => {
    proxy.close();
    for (const socket of sockets) socket.destroy();
  });
  return (proxy.address() as { port: number }).port;
}

async function serve(tls = true): Promise<NvmeTarget> {
  const target = await NvmeTarget.listen({
    subsystems: [{ nqn, namespaces: [memoryDevice({ bytes: 1024 * 1024 })], hosts: "any" }],
    port: 0,
    ...(tls ? { tls: { keys: { [hostNqn]: key } } } : {}),
  });
  ends.push(() => target.close());
  return target;
}

/** What the client prints when the target has answered it. */
async function report(target: NvmeTarget, args: readonly string[]): Promise<string> {
  const to = ["-connect", `127.0.0.1:${target.address.port}`];
  const client = openssl(["s_client", ...to, ...args]);
  client.stdin.end("Q\n");
  let text = "";
  for (const stream of [client.stdout, client.stderr]) stream.on("data", (part) => (text += part));
  await once(client, "close");
  return text;
}

describe("a client of OpenSSL", () => {
  it.each([
    ["an identity of version 0", 0, []],
    ["an identity of version 1", 1, []],
    ["a group of the specification", 0, ["-groups", "ffdhe3072"]],
    ["a group that it first proposes another for", 0, ["-groups", "ffdhe2048:P-384"]],
  ] as const)("carries a disk to the target with %s", async (_, version, more) => {
    const target = await serve();
    const port = await throughClient(target, [...keyArguments(nqn, version), "-tls1_3", ...more]);
    await using host = await NvmeHost.connect({ nqn, hostNqn, paths: [{ host: "127.0.0.1", port }] });
    const data = Buffer.alloc(512 * 1024, "a stamp of nine");
    await host.namespaces[0]?.write(0, data);
    const back = Buffer.alloc(data.length);
    await host.namespaces[0]?.read(0, back);
    expect(back.equals(data)).toBe(true);
    expect(target.stats()).toMatchObject({ open: 2, ioQueues: 1 });
  });

  it("gets TLS 1.3 with the one cipher suite, and no early data", async () => {
    const text = await report(await serve(), [...keyArguments(nqn), "-tls1_3"]);
    expect(text).toContain(`Reused, TLSv1.3, Cipher is ${suite}`);
    expect(text).toContain("no peer certificate available");
    expect(text).toContain("Early data was not sent");
    expect(text).not.toMatch(/Max Early Data: [1-9]/);
  });

  it.each([
    ["TLS 1.2", ["-tls1_2"], /protocol version|no ciphers available/],
    ["the cipher suite of SHA-384", ["-tls1_3", "-ciphersuites", "TLS_AES_256_GCM_SHA384"], /alert|no psk/i],
    ["a group that costs much", ["-tls1_3", "-groups", "ffdhe8192"], /alert handshake failure/],
    ["a wrong key", ["-tls1_3", "-psk", "00".repeat(32)], /alert (?:illegal parameter|decrypt error)/],
    ["another identity", ["-tls1_3", "-psk_identity", "Client_identity"], /alert handshake failure/],
  ] as const)("completes no handshake with %s", async (_, more, reason) => {
    const target = await serve();
    const text = await report(target, [...keyArguments(nqn), ...more]);
    expect(text).toMatch(reason);
    await expect.poll(() => target.stats()).toMatchObject({ open: 0, inHandshake: 0 });
  });
});

/** The port of TCP where a process listens, as the kernel lists it. */
function listeningPort(pid: number | undefined): number | undefined {
  const folder = `/proc/${pid}/fd`;
  const inodes = readdirSync(folder).map((fd) => {
    try {
      return /^socket:\[(\d+)\]$/.exec(readlinkSync(`${folder}/${fd}`))?.[1];
    } catch {
      return undefined; // it was closed meanwhile
    }
  });
  for (const line of readFileSync("/proc/net/tcp", "utf8").split("\n")) {
    const [, local = "", , state, , , , , , inode] = line.trim().split(/\s+/);
    if (state === "0A" && inodes.includes(inode)) return Number.parseInt(local.slice(-4), 16);
  }
  return undefined;
}

describe("a server of OpenSSL", () => {
  /** It has one connection at a time: its client asks the discovery service of a target behind it. */
  async function listenBefore(target: NvmeTarget, args: readonly string[]): Promise<number> {
    const onward = connect(target.address.port, "127.0.0.1");
    ends.push(() => onward.destroy());
    const server = openssl(["s_server", "-quiet", "-nocert", "-tls1_3", "-accept", "127.0.0.1:0", ...args]);
    server.stdout.pipe(onward.on("error", () => {})).pipe(server.stdin);
    // It says nothing when it listens.
    await expect.poll(() => listeningPort(server.pid)).toBeDefined();
    return listeningPort(server.pid) as number;
  }

  it.each([0, 1] as const)("carries a host to a target, with an identity of version %i", async (version) => {
    const target = await serve(false);
    const port = await listenBefore(target, keyArguments(discoveryNqn, version));
    const tls = { key, identityVersion: version };
    const found = await NvmeHost.discover({ host: "127.0.0.1", port, hostNqn, tls });
    expect(found.map((one) => one.nqn)).toEqual([nqn]);
  });

  it.each([
    ["another key", ["-psk", "00".repeat(32)]],
    ["another identity", ["-psk_identity", "another"]],
  ])("is not used with %s", async (_, more) => {
    const target = await serve(false);
    const port = await listenBefore(target, [...keyArguments(discoveryNqn), ...more]);
    const discovering = NvmeHost.discover({ host: "127.0.0.1", port, hostNqn, tls: { key } });
    await expect(discovering).rejects.toThrow(/TLS failed: /);
  });
});
