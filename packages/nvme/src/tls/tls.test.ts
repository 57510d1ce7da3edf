import { generateKeyPairSync } from "node:crypto";
import { once } from "node:events";
import { connect as connectSocket, createServer, type Socket } from "node:net";
import {
  type ConnectionOptions,
  connect as connectTls,
  createServer as createTlsServer,
  type TLSSocket,
} from "node:tls";
import { Engine } from "cinnabar/standard";
import { afterEach, describe, expect, it, vi } from "vitest";
import { makeSecret } from "../authentication/secret.ts";
import { memoryDevice } from "../device/memory-device.ts";
import { NvmeHost, type NvmeHostOptions } from "../host/nvme-host.ts";
import { TestAuthority } from "../nbd/certificates.test-support.ts";
import { discoveryNqn } from "../nvme/command.ts";
import { status } from "../nvme/status.ts";
import { NvmeTarget, type NvmeTargetOptions } from "../nvme/target.ts";
import { HostQueue } from "../tcp/host.test-support.ts";
import { makeTlsKey, type TlsKey, tlsKeyField } from "./key.ts";
import { parameters } from "./parameters.ts";
import { formerPreSharedKey, type PreSharedKey, preSharedKey } from "./pre-shared-key.ts";
import type { NvmeTargetTls } from "./target-side.ts";

const nqn = "nqn.2026-11.test:disk";
const otherNqn = "nqn.2026-11.test:other-disk";
const hostNqn = "nqn.2026-11.test:host";
const otherHostNqn = "nqn.2026-11.test:other-host";
const plainHostNqn = "nqn.2026-11.test:plain-host";
const [key, otherKey] = [makeTlsKey(), makeTlsKey()];
const keys = { [hostNqn]: key, [otherHostNqn]: otherKey };
const ends: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

async function serve(options: Partial<NvmeTargetOptions> = {}, tls: Partial<NvmeTargetTls> = {}) {
  const bytes = 1024 * 1024;
  const target = await NvmeTarget.listen({
    subsystems: [
      { nqn, namespaces: [memoryDevice({ bytes })], hosts: "any" },
      { nqn: otherNqn, namespaces: [memoryDevice({ bytes })], hosts: [hostNqn] },
    ],
    ...{ port: 0, tls: { keys, ...tls }, ...options },
  });
  ends.push(() => target.close());
  return target;
}

async function connect(
  target: { readonly address: { host: string; port: number } },
  options: Partial<NvmeHostOptions> = {},
) {
  const host = await NvmeHost.connect({
    ...{ nqn, hostNqn, tls: { key }, paths: [target.address], reconnectMs: 10, queues: 2 },
    ...options,
  });
  ends.push(() => host.close());
  return host;
}

const parsed = (text: string): TlsKey => tlsKeyField.resolve("test", "key", text) as TlsKey;
const pskOf = (text: string, names = { hostNqn, subsystemNqn: nqn }, version: 0 | 1 = 0) =>
  preSharedKey(parsed(text), names, version) as PreSharedKey;

/** A connection over TLS of another client, such as a host that lies about itself. */
async function clientOf(
  port: number,
  one: PreSharedKey,
  options: ConnectionOptions = {},
): Promise<TLSSocket> {
  const socket = connectTls({
    ...{ ...parameters, port, host: "127.0.0.1", rejectUnauthorized: false },
    ...{ pskCallback: () => one, ...options },
  });
  ends.push(async () => socket.destroy());
  await once(socket, "secureConnect");
  socket.on("error", () => {});
  return socket;
}

async function queueOver(socket: Socket): Promise<HostQueue> {
  const queue = new HostQueue(socket, { header: false, data: false });
  await queue.greet();
  return queue;
}

describe("NVMe/TCP over TLS", () => {
  it.each([0, 1] as const)("carries all queues, with an identity of version %i", async (identityVersion) => {
    const target = await serve();
    const host = await connect(target, {
      tls: { key, identityVersion },
      headerDigest: true,
      dataDigest: true,
    });
    const [disk] = host.namespaces;
    const data = Buffer.alloc(768 * 1024, "a stamp of nine");
    await disk?.write(4096, data);
    const back = Buffer.alloc(data.length);
    await disk?.read(4096, back);
    expect(back.equals(data)).toBe(true);
    await disk?.flush();
    expect(target.stats()).toMatchObject({ open: 3, inHandshake: 0, ioQueues: 2 });
    await host.close();
    await expect.poll(() => target.stats()).toMatchObject({ open: 0, controllers: 0, refused: 0 });
  });

  it("sends no block in plain text", async () => {
    const target = await serve();
    const seen: Buffer[] = [];
    const proxy = createServer((socket) => {
      const onward = connectSocket(target.address.port, "127.0.0.1");
      for (const one of [socket, onward]) one.on("error", () => {}).on("data", (part) => seen.push(part));
      socket.pipe(onward).pipe(socket);
    });
    ends.push(async () => proxy.close());
    await once(proxy.listen(0, "127.0.0.1"), "listening");
    const { port } = proxy.address() as { port: number };
    const host = await connect(target, { paths: [{ host: "127.0.0.1", port }] });
    const stamp = "a block that nobody reads";
    await host.namespaces[0]?.write(0, Buffer.alloc(65_536, stamp));
    await host.namespaces[0]?.read(0, Buffer.alloc(65_536));
    await host.close();
    const all = Buffer.concat(seen);
    expect(all.length).toBeGreaterThan(2 * 65_536);
    expect(all.includes(stamp.slice(0, 12))).toBe(false);
    // The names are in the hello, which is not encrypted.
    expect(all.includes(hostNqn)).toBe(true);
  });

  it("goes on after the connections are lost", async () => {
    const target = await serve();
    const sockets: Socket[] = [];
    const proxy = createServer((socket) => {
      const onward = connectSocket(target.address.port, "127.0.0.1");
      for (const one of [socket, onward]) one.on("error", () => {});
      sockets.push(socket);
      socket.pipe(onward).pipe(socket);
    });
    ends.push(async () => proxy.close());
    await once(proxy.listen(0, "127.0.0.1"), "listening");
    const { port } = proxy.address() as { port: number };
    const host = await connect(target, { paths: [{ host: "127.0.0.1", port }] });
    const data = Buffer.alloc(256 * 1024, 3);
    const writing = host.namespaces[0]?.write(0, data);
    for (const socket of sockets.splice(0)) socket.destroy();
    await writing;
    expect(await host.namespaces[0]?.compare(0, data)).toBe(true);
    expect(host.stats().paths[0]?.connects).toBeGreaterThan(1);
    ends.push(async () => sockets.map((socket) => socket.destroy()));
  });

  it("leaves no socket of a connection that ends under a command", async () => {
    const sockets = () => process.getActiveResourcesInfo().filter((kind) => kind === "TCPSocketWrap").length;
    const before = sockets();
    const device = memoryDevice({ bytes: 1024 * 1024 });
    let finish = () => {};
    const read = vi
      .spyOn(device, "read")
      .mockImplementation(() => new Promise<void>((resolve) => (finish = resolve)));
    const target = await serve({ subsystems: [{ nqn, namespaces: [device], hosts: "any" }] });
    const near: Socket[] = [];
    const proxy = createServer((socket) => {
      const onward = connectSocket(target.address.port, "127.0.0.1");
      for (const one of [socket, onward]) one.on("error", () => {});
      near.push(socket.on("close", () => onward.destroy()));
      socket.pipe(onward).pipe(socket);
    });
    ends.push(async () => proxy.close());
    await once(proxy.listen(0, "127.0.0.1"), "listening");
    const { port } = proxy.address() as { port: number };
    const host = await connect(target, {
      paths: [{ host: "127.0.0.1", port }],
      queues: 1,
      reconnectMs: 60_000,
    });
    const reading = host.namespaces[0]?.read(0, Buffer.alloc(4096));
    await expect.poll(() => read.mock.calls.length).toBe(1);
    near[1]?.destroy();
    await expect.poll(() => host.stats().paths[0]?.isConnected).toBe(false);
    const refused = expect(reading).rejects.toThrow();
    await host.close();
    await refused;
    finish();
    for (const end of ends.splice(0).reverse()) await end();
    await expect.poll(sockets).toBeLessThanOrEqual(before);
  });

  it("is under secrets, where the target asks for one as well", async () => {
    const secret = makeSecret();
    const hosts = [{ nqn: hostNqn, secret }];
    const subsystems = [{ nqn, namespaces: [memoryDevice({ bytes: 1024 * 1024 })], hosts }];
    const target = await serve({ subsystems });
    const host = await connect(target, { secret });
    expect(host.stats().paths[0]?.isConnected).toBe(true);
    await expect(connect(target)).rejects.toThrow("the target wants a secret");
  });

  it("is also for the discovery service, which says so", async () => {
    const target = await serve();
    const options = { ...target.address, hostNqn, tls: { key } };
    expect((await NvmeHost.discover(options)).map((one) => one.nqn)).toEqual([nqn, otherNqn]);
    const names = { hostNqn, subsystemNqn: discoveryNqn };
    const queue = await queueOver(await clientOf(target.address.port, pskOf(key, names)));
    await queue.connect({ nqn: discoveryNqn, host: hostNqn });
    const log = await logOf(queue);
    expect([log.readUInt8(1024 + 3), log.readUInt8(1024 + 768)]).toEqual([1, 2]);
  });

  it("takes the identity that earlier versions of libnvme make", async () => {
    const target = await serve();
    const former = formerPreSharedKey(parsed(key), { hostNqn, subsystemNqn: nqn }) as PreSharedKey;
    const queue = await queueOver(await clientOf(target.address.port, former));
    expect((await queue.connect({ nqn, host: hostNqn })).status).toBe(0);
  });
});

const logOf = async (queue: HostQueue): Promise<Buffer> => {
  await queue.setProperty(0x14, 0x460001);
  return (await queue.command({ opcode: 2, words: [0x01ff_0070], bytes: 2048 })).data;
};

const handshakeFailure = 40;
/** OpenSSL 3.0 and 3.5 have different alerts for it: illegal parameter, decrypt error. */
const wrongProof = [47, 51];

/** A record with the hello of a client that offers several identities, and proves none of them. */
function helloOf(identities: readonly string[]): Buffer {
  const sized = (lengthBytes: number, ...parts: readonly Buffer[]): Buffer => {
    const all = Buffer.concat(parts);
    const length = Buffer.alloc(lengthBytes);
    length.writeUIntBE(all.length, 0, lengthBytes);
    return Buffer.concat([length, all]);
  };
  const hex = (text: string) => Buffer.from(text, "hex");
  const share = generateKeyPairSync("x25519").publicKey.export({ type: "spki", format: "der" }).subarray(-32);
  const extensions = [
    [hex("002b"), sized(2, hex("020304"))], // TLS 1.3
    [hex("000a"), sized(2, hex("0002001d"))], // X25519
    [hex("000d"), sized(2, hex("000404030804"))], // signatures
    [hex("0033"), sized(2, sized(2, hex("001d"), sized(2, share)))],
    [hex("002d"), sized(2, hex("0101"))], // keys with Diffie-Hellman
    [
      hex("0029"),
      sized(
        2,
        sized(2, ...identities.flatMap((one) => [sized(2, Buffer.from(one)), Buffer.alloc(4)])),
        sized(2, ...identities.map(() => sized(1, Buffer.alloc(32, 7)))),
      ),
    ],
  ].flat();
  const suite = hex("000213010100");
  const hello = [hex("0303"), Buffer.alloc(32, 9), hex("00"), suite, sized(2, ...extensions)];
  return Buffer.concat([hex("160301"), sized(2, hex("01"), sized(3, ...hello))]);
}

describe("a target whose hosts have keys", () => {
  const named: [string, Record<string, unknown>, string, number][] = [
    ["another host without a key", { host: plainHostNqn }, nqn, status.hostNotAllowed.code],
    ["another host that has a key", { host: otherHostNqn }, nqn, status.hostNotAllowed.code],
    ["another subsystem", { host: hostNqn, nqn: otherNqn }, nqn, status.connectParameters.code],
    ["the discovery service", { host: hostNqn, nqn: discoveryNqn }, nqn, status.connectParameters.code],
    [
      "a subsystem by the key of discovery",
      { host: hostNqn, nqn },
      discoveryNqn,
      status.connectParameters.code,
    ],
  ];
  it.each(named)("refuses Connect by status where it names %s", async (_, fields, subsystemNqn, code) => {
    const target = await serve();
    const one = pskOf(key, { hostNqn, subsystemNqn });
    const queue = await queueOver(await clientOf(target.address.port, one));
    expect((await queue.connect({ nqn, ...fields })).status).toBe(code);
    await queue.ended();
    expect(target.stats()).toMatchObject({ controllers: 0, open: 0 });
  });

  it("refuses a host that the subsystem does not admit, whatever key it has", async () => {
    const target = await serve();
    const one = pskOf(otherKey, { hostNqn: otherHostNqn, subsystemNqn: otherNqn });
    const queue = await queueOver(await clientOf(target.address.port, one));
    const answer = await queue.connect({ nqn: otherNqn, host: otherHostNqn });
    expect(answer.status).toBe(status.hostNotAllowed.code);
  });

  it("refuses an I/O queue whose key is that of another host", async () => {
    const target = await serve();
    const admin = await queueOver(await clientOf(target.address.port, pskOf(key)));
    const { result } = await admin.connect({ nqn, host: hostNqn });
    await admin.setProperty(0x14, 0x460001);
    const names = { hostNqn: otherHostNqn, subsystemNqn: nqn };
    const other = await queueOver(await clientOf(target.address.port, pskOf(otherKey, names)));
    const controllerId = Number(result & 0xffffn);
    const answer = await other.connect({ queueId: 1, controllerId, nqn, host: hostNqn });
    expect(answer.status).toBe(status.hostNotAllowed.code);
  });

  // OpenSSL 3.0 and 3.5 end the handshake of a wrong key by alerts of different names.
  it.each<[string, PreSharedKey, string | RegExp]>([
    ["a wrong key", { ...pskOf(key), psk: pskOf(otherKey).psk }, /illegal parameter|decrypt error/],
    ["the key of another host", pskOf(otherKey), /illegal parameter|decrypt error/],
    ["an unknown host", pskOf(key, { hostNqn: plainHostNqn, subsystemNqn: nqn }), "handshake failure"],
    ["an identity with a wrong digest", pskOf(otherKey, undefined, 1), "handshake failure"],
    [
      "an identity for another hash function",
      { ...pskOf(key), identity: pskOf(key).identity.replace("R01", "R02") },
      "handshake failure",
    ],
    [
      "an identity of a generated key",
      { ...pskOf(key), identity: pskOf(key).identity.replace("R01", "G01") },
      "handshake failure",
    ],
    [
      "an identity with more behind it",
      { ...pskOf(key), identity: `${pskOf(key).identity} x` },
      "handshake failure",
    ],
    ["an identity of no form", { ...pskOf(key), identity: "x" }, "handshake failure"],
  ])("completes no handshake with %s", async (_, one, reason) => {
    const target = await serve();
    await expect(clientOf(target.address.port, one)).rejects.toThrow(reason);
    await expect.poll(() => target.stats()).toMatchObject({ open: 0, inHandshake: 0 });
  });

  it.each<[number, string, readonly number[]]>([
    [0, "looks for its key", wrongProof],
    [1, "looks for its key", wrongProof],
    [2, "looks for no key", [handshakeFailure]],
    [180, "looks for no key", [handshakeFailure]],
  ])("behind %i other identities in a hello %s", async (others, _, alerts) => {
    const target = await serve();
    const { identity } = pskOf(key);
    const unknown = Array.from({ length: others }, (_, index) => identity.replace(hostNqn, `nqn.${index}`));
    const socket = connectSocket(target.address.port, "127.0.0.1");
    ends.push(async () => socket.destroy());
    socket.on("error", () => {}).write(helloOf([...unknown, identity]));
    const [answer] = (await once(socket, "data")) as [Buffer];
    // A record with an alert, and its description.
    expect(answer.readUInt8(0)).toBe(21);
    expect(alerts).toContain(answer.readUInt8(6));
  });

  it("takes a host that sends a second hello with a key share of another group", async () => {
    const target = await serve();
    const queue = await queueOver(
      await clientOf(target.address.port, pskOf(key, undefined, 1), { ecdhCurve: "P-521:P-384" }),
    );
    expect((await queue.connect({ nqn, host: hostNqn })).status).toBe(0);
  });

  it.each<[string, ConnectionOptions]>([
    ["TLS 1.2", { minVersion: "TLSv1.2", maxVersion: "TLSv1.2", ciphers: "PSK" }],
    ["another cipher suite", { ciphers: "TLS_AES_256_GCM_SHA384" }],
    ["no key", { pskCallback: undefined }],
    ["a group that costs much", { ecdhCurve: "ffdhe8192" }],
  ])("completes no handshake with %s", async (_, options) => {
    const target = await serve();
    await expect(clientOf(target.address.port, pskOf(key), options)).rejects.toThrow(
      /alert|handshake failure/,
    );
    await expect.poll(() => target.stats()).toMatchObject({ open: 0, inHandshake: 0 });
  });

  it("offers no session, since Linux takes no message of the handshake afterwards", async () => {
    const target = await serve();
    const client = await clientOf(target.address.port, pskOf(key));
    let sessions = 0;
    client.on("session", () => sessions++);
    // Tickets come before the first byte of the target.
    await (await queueOver(client)).connect({ nqn, host: hostNqn });
    expect(sessions).toBe(0);
    const session = client.getSession();
    await expect(
      clientOf(target.address.port, pskOf(key), { session, pskCallback: undefined }),
    ).rejects.toThrow("handshake failure");
  });

  it("ends a connection without TLS", async () => {
    const target = await serve();
    const queue = await HostQueue.open(target.address.port);
    await expect(queue.greet()).rejects.toThrow("the target ended the connection");
    await expect(connect(target, { tls: undefined })).rejects.toThrow("the target ended the connection");
    await expect.poll(() => target.stats()).toMatchObject({ open: 0, inHandshake: 0 });
  });

  it.each<[string, Buffer]>([
    ["a hello that is too long", Buffer.from([22, 3, 1, 0x40, 0, 1, 0, 0x40, 1, 3, 3])],
    ["a message that is no hello", Buffer.from([22, 3, 1, 0, 4, 2, 0, 0, 0, 0, 0])],
    ["an alert", Buffer.concat([Buffer.from([21, 3, 1, 0, 2, 1, 0]), Buffer.alloc(128)])],
    ["bytes of no protocol", Buffer.alloc(128, 0xff)],
    ["a damaged hello", Buffer.concat([Buffer.from([22, 3, 1, 0, 64, 1, 0, 0, 60]), Buffer.alloc(60, 9)])],
  ])("ends a connection that begins with %s", async (_, bytes) => {
    const target = await serve({ handshakeTimeoutMs: 600_000 });
    const socket = connectSocket(target.address.port, "127.0.0.1");
    socket
      .on("error", () => {})
      .resume()
      .write(bytes);
    await new Promise((resolve) => socket.once("close", resolve));
    await expect.poll(() => target.stats()).toMatchObject({ open: 0, inHandshake: 0 });
  });

  it("takes a hello that comes byte by byte", async () => {
    const target = await serve();
    const socket = connectSocket(target.address.port, "127.0.0.1");
    await once(socket.setNoDelay(), "connect");
    const slow = createServer((from) => {
      from.on("data", (part) => {
        for (const byte of part) socket.write(Buffer.from([byte]));
      });
      socket.pipe(from);
    });
    ends.push(async () => {
      socket.destroy();
      slow.close();
    });
    await once(slow.listen(0, "127.0.0.1"), "listening");
    const queue = await queueOver(await clientOf((slow.address() as { port: number }).port, pskOf(key)));
    expect((await queue.connect({ nqn, host: hostNqn })).status).toBe(0);
  });

  it("ends handshakes that are not completed in time, and the oldest of too many", async () => {
    const target = await serve({ handshakeTimeoutMs: 200, maxHandshakes: 2 });
    const begin = async (bytes: Buffer) => {
      const socket = connectSocket(target.address.port, "127.0.0.1");
      socket.on("error", () => {}).resume();
      await once(socket, "connect");
      socket.write(bytes);
      return new Promise((resolve) => socket.once("close", resolve));
    };
    const half = Buffer.from([22, 3, 1, 1, 0, 1, 0, 0, 252, 3, 3]);
    const [first, second, third] = [begin(half), begin(Buffer.alloc(0)), begin(half.subarray(0, 3))];
    await Promise.all([first, second, third]);
    await expect.poll(() => target.stats()).toMatchObject({ open: 0, inHandshake: 0, refused: 3 });
  });

  it("ends a connection whose host says nothing over TLS", async () => {
    const target = await serve({ handshakeTimeoutMs: 1000 });
    // On a busy machine the time may be over before.
    const silent = await clientOf(target.address.port, pskOf(key)).catch(() => undefined);
    if (silent !== undefined) await new Promise((resolve) => silent.once("close", resolve));
    await expect.poll(() => target.stats()).toMatchObject({ open: 0, inHandshake: 0, refused: 1 });
  });

  it("closes with connections in every state", async () => {
    const target = await serve();
    const socket = connectSocket(target.address.port, "127.0.0.1");
    socket.on("error", () => {}).resume();
    await once(socket, "connect");
    socket.write(Buffer.from([22, 3, 1, 1, 0, 1, 0, 0, 252]));
    const queue = await queueOver(await clientOf(target.address.port, pskOf(key)));
    await queue.connect({ nqn, host: hostNqn });
    await target.close();
    await queue.ended();
    expect(target.stats()).toMatchObject({ open: 0, inHandshake: 0 });
  });
});

describe("calls of a target whose hosts have keys", () => {
  const open = async (target: NvmeTarget) => {
    const server = await Engine.open({ listen: "mem://nvme-tls", serve: [target.capsules] });
    ends.push(() => server.close());
    const engine = await Engine.open();
    ends.push(() => engine.close());
    return { tls: undefined, paths: [{ engine, url: "mem://nvme-tls" }] };
  };

  it("are not for such a host, which cannot prove its key there, and stay open to others", async () => {
    const target = await serve();
    const way = await open(target);
    await expect(connect(target, way)).rejects.toThrow("it does not admit this host");
    const plain = await connect(target, { ...way, hostNqn: plainHostNqn });
    expect(plain.stats().paths[0]?.isConnected).toBe(true);
  });

  it("are for such a host where it proves a secret, which does not replace the key over NVMe/TCP", async () => {
    const secret = makeSecret();
    const hosts = [{ nqn: hostNqn, secret }];
    const subsystems = [{ nqn, namespaces: [memoryDevice({ bytes: 1024 * 1024 })], hosts }];
    const target = await serve({ subsystems }, { allowPlaintext: true });
    const way = await open(target);
    expect((await connect(target, { ...way, secret })).stats().paths[0]?.isConnected).toBe(true);
    await expect(connect(target, way)).rejects.toThrow("the target wants a secret");
    await expect(connect(target, { tls: undefined, secret })).rejects.toThrow("it does not admit this host");
  });
});

describe("a target that allows plain text", () => {
  it("takes hosts without a key, and refuses the names of those with one", async () => {
    const target = await serve({}, { allowPlaintext: true });
    const plain = await connect(target, { tls: undefined, hostNqn: plainHostNqn });
    const data = Buffer.alloc(128 * 1024, 7);
    await plain.namespaces[0]?.write(0, data);
    expect(await plain.namespaces[0]?.compare(0, data)).toBe(true);
    await connect(target);
    await expect(connect(target, { tls: undefined })).rejects.toThrow("it does not admit this host");
    const discovered = { ...target.address, hostNqn };
    await expect(NvmeHost.discover(discovered)).rejects.toThrow("it does not admit this host");
  });

  it("says in its log that TLS is required to a host that has a key, and nothing of TLS to others", async () => {
    const target = await serve({}, { allowPlaintext: true });
    const plain = await HostQueue.open(target.address.port, { header: false, data: false });
    ends.push(async () => plain.socket.destroy());
    await plain.greet();
    const names = { hostNqn, subsystemNqn: discoveryNqn };
    const secured = await queueOver(await clientOf(target.address.port, pskOf(key, names)));
    for (const [queue, host, expected] of [
      [plain, plainHostNqn, [0, 0]],
      [secured, hostNqn, [1, 2]],
    ] as const) {
      await queue.connect({ nqn: discoveryNqn, host });
      const log = await logOf(queue);
      expect([log.readUInt8(1024 + 3), log.readUInt8(1024 + 768)]).toEqual(expected);
    }
  });
});

describe("a host with a key", () => {
  it.each<[string, Partial<NvmeHostOptions>, string | RegExp]>([
    ["another key", { tls: { key: otherKey } }, /TLS failed: .*alert (?:illegal parameter|decrypt error)/],
    ["an unknown name", { hostNqn: plainHostNqn }, /TLS failed: .*alert handshake failure/],
  ])("does not connect with %s, and shows no key", async (_, options, reason) => {
    const target = await serve();
    const failed = connect(target, options);
    await expect(failed).rejects.toThrow(reason);
    const error = (await failed.catch((one: unknown) => one)) as Error;
    for (const secret of [key, otherKey, pskOf(key).psk.toString("hex")])
      expect(JSON.stringify([error.message, error.stack, error])).not.toContain(secret.slice(18, 40));
  });

  it("does not use a target without TLS", async () => {
    const target = await serve({ tls: undefined });
    await expect(connect(target)).rejects.toThrow(/TLS failed: /);
  });

  it("does not use a target that has a certificate in place of the key", async () => {
    const server = createTlsServer({ ...new TestAuthority("an authority").issue("server"), ...parameters });
    server.on("tlsClientError", () => {});
    await once(server.listen(0, "127.0.0.1"), "listening");
    ends.push(async () => server.close());
    const { port } = server.address() as { port: number };
    await expect(connect({ address: { host: "127.0.0.1", port } })).rejects.toThrow(/TLS failed: /);
  });

  it.each<[string, (socket: Socket) => void, number, RegExp]>([
    ["hangs up", (socket) => socket.destroy(), 30_000, /TLS failed: |ECONNRESET/],
    ["answers with nothing", () => {}, 200, /no answer within 200 ms/],
  ])("gives up a target that %s", async (_, act, timeoutMs, reason) => {
    const sockets: Socket[] = [];
    const server = createServer((socket) => {
      sockets.push(socket.on("error", () => {}));
      act(socket);
    });
    await once(server.listen(0, "127.0.0.1"), "listening");
    ends.push(async () => {
      for (const socket of sockets) socket.destroy();
      server.close();
    });
    const { port } = server.address() as { port: number };
    const address = { host: "127.0.0.1", port };
    await expect(connect({ address }, { timeoutMs })).rejects.toThrow(reason);
  });
});

describe("the options of TLS", () => {
  const listen = (tls: unknown, more: Partial<NvmeTargetOptions> = {}) =>
    serve({ tls: tls as NvmeTargetTls, ...more });

  it.each<[string, unknown, string]>([
    ["no keys", {}, "tls.keys"],
    [
      "an empty object of keys",
      { keys: {} },
      "NvmeTarget.listen: tls.keys must have the key of one host at least",
    ],
    ["a map of keys", { keys: new Map() }, "tls.keys must be an object with a key for the NQN of each host"],
    ["a key of no host", { keys: { host: key } }, "a name in tls.keys must be an NVMe qualified name"],
    [
      "a name with a space",
      { keys: { "nqn.a b": key } },
      "a name in tls.keys must be an NVMe qualified name",
    ],
    ["a damaged key", { keys: { [hostNqn]: `${key}x` } }, `tls.keys["${hostNqn}"] must be a key for TLS`],
    ["an unknown option", { keys, plaintext: true }, "plaintext"],
  ])("of a target are refused with %s, and no key is shown", async (_, tls, why) => {
    const error = await listen(tls).catch((one: Error) => one);
    expect((error as Error).message).toContain(why);
    expect((error as Error).message).not.toContain(key.slice(18, 40));
  });

  it("need names that an identity has room for", async () => {
    const namespaces = [memoryDevice({ bytes: 4096 })];
    const long = `nqn.${"s".repeat(219)}`;
    await expect(listen({ keys }, { subsystems: [{ nqn: long, namespaces, hosts: "any" }] })).rejects.toThrow(
      "the names of a host and of its subsystem have at most 245 bytes together",
    );
    await listen({ keys }, { subsystems: [{ nqn: long, namespaces, hosts: [plainHostNqn] }] });
    const spaced = [{ nqn: "nqn.a b", namespaces, hosts: "any" as const }];
    await expect(listen({ keys }, { subsystems: spaced })).rejects.toThrow("must have no spaces: nqn.a b");
    const target = await serve();
    await expect(connect(target, { nqn: long, hostNqn: otherHostNqn })).rejects.toThrow(
      "tls.identityVersion 0 has room for two names of 245",
    );
    const tls = { key, identityVersion: 1 } as const;
    await expect(connect(target, { nqn: long, tls })).rejects.toThrow("two names of 201 bytes");
  });

  it("of a host need its name, and paths of NVMe/TCP", async () => {
    const target = await serve();
    await expect(connect(target, { hostNqn: undefined })).rejects.toThrow("tls needs hostNqn");
    await expect(NvmeHost.discover({ ...target.address, tls: { key } })).rejects.toThrow("tls needs hostNqn");
    const engine = await Engine.open();
    ends.push(() => engine.close());
    const paths = [target.address, { engine, url: "mem://none" }];
    await expect(connect(target, { paths })).rejects.toThrow("paths[1] is that of an engine");
    await expect(connect(target, { tls: { key: "x" } })).rejects.toThrow("tls.key must be a key for TLS");
  });
});
