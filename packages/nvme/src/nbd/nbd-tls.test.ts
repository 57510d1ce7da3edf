import { once } from "node:events";
import { connect as connectSocket } from "node:net";
import { Duplex } from "node:stream";
import { type ConnectionOptions, connect as connectTls, type TLSSocket } from "node:tls";
import { resolveNested } from "cinnabar/options";
import { afterEach, describe, expect, it } from "vitest";
import type { BlockDevice } from "../device/block-device.ts";
import { memoryDevice, nullDevice } from "../device/memory-device.ts";
import { FakeSocket } from "../fake-socket.test-support.ts";
import { TestAuthority } from "./certificates.test-support.ts";
import {
  contextMessage,
  goMessage,
  NbdClient,
  oneExport,
  optionMessage,
  pathOf,
  requestMessage,
  uint32,
} from "./nbd-client.test-support.ts";
import { type NbdOptions, type NbdServer, nbdConnection, serveNbd } from "./nbd-server.ts";
import { command, option, optionReply } from "./protocol.ts";
import { TlsUpgrade, tlsFields } from "./tls-upgrade.ts";

const mib = 1024 * 1024;
const bytes = 64 * mib;
const authority = new TestAuthority("the authority");
const other = new TestAuthority("another authority");
const serverPair = authority.issue("server");
/** What clients trust. */
const trusting: ConnectionOptions = { ca: authority.cert, servername: "server.example" };
const servers: NbdServer[] = [];

afterEach(async () => {
  for (const server of servers.splice(0)) await server.close();
});

async function serve({
  device = memoryDevice({ bytes }),
  ...options
}: NbdOptions & { device?: BlockDevice } = {}) {
  const server = await serveNbd(device, { tls: serverPair, ...options });
  servers.push(server);
  return { device, server, uri: server.uri };
}

const counts = { reads: 0, writes: 0, others: 0, failed: 0, open: 0 };

describe("TLS of NBD", () => {
  it.each(["TLSv1.2", "TLSv1.3"] as const)(
    "by %s carries the handshake and all requests",
    async (version) => {
      const { uri, server } = await serve();
      expect(uri).toMatch(/^nbds\+unix:\/\/\/disk\?socket=/);
      const client = await NbdClient.open(uri, {
        tls: { ...trusting, minVersion: version, maxVersion: version },
      });
      const data = Buffer.alloc(5 * mib + 4096, "a stamp of nine");
      expect(await client.errorOf({ type: command.write, offset: mib, bytes: data.length }, data)).toBe(0);
      expect((await client.read(mib, data.length)).equals(data)).toBe(true);
      expect(await client.errorOf({ type: command.flush })).toBe(0);
      expect(await client.errorOf({ type: command.blockStatus, bytes: mib })).toBe(0);
      client.send(requestMessage({ type: command.disconnect }));
      await client.ended();
      expect(server.stats()).toMatchObject({ reads: 1, writes: 1, others: 2, failed: 0 });
    },
  );

  it.each(["TLSv1.2", "TLSv1.3"] as const)("by %s resumes no session", async (version) => {
    const { uri } = await serve();
    const tls = { ...trusting, minVersion: version, maxVersion: version };
    const first = await NbdClient.open(uri, { tls });
    const session = (first.socket as TLSSocket).getSession();
    const second = await NbdClient.open(uri, { tls: { ...tls, session } });
    expect((second.socket as TLSSocket).isSessionReused()).toBe(false);
  });

  it("is not spoken in versions before 1.2", async () => {
    const { uri } = await serve();
    const old = { minVersion: "TLSv1", maxVersion: "TLSv1.1", ciphers: "DEFAULT:@SECLEVEL=0" } as const;
    await expect(NbdClient.open(uri, { tls: { ...trusting, ...old } })).rejects.toThrow();
  });

  it.each<[string, Buffer]>([
    ["LIST", optionMessage(option.list)],
    ["INFO", goMessage("disk", [3], option.info)],
    ["GO", goMessage("disk")],
    ["GO of an export that is not there", goMessage("other")],
    ["STRUCTURED_REPLY", optionMessage(option.structuredReply)],
    ["LIST_META_CONTEXT", contextMessage([], option.listMetaContext)],
    ["an option that nobody knows", optionMessage(99, Buffer.alloc(100))],
  ])("is required before %s, which changes nothing", async (_, message) => {
    const { uri } = await serve();
    const client = await NbdClient.connect(uri);
    await client.greet();
    client.send(message);
    expect((await client.optionReply()).type).toBe(optionReply.tlsRequired);
    await client.startTls(trusting);
    client.send(goMessage("disk"));
    while ((await client.optionReply()).type !== optionReply.ack);
    client.send(requestMessage({ type: command.read, bytes: 4096 }));
    expect((await client.simple(4096)).error).toBe(0);
  });

  it.each<[string, Buffer[]]>([
    ["EXPORT_NAME", [uint32(3), optionMessage(option.exportName, Buffer.from("disk"))]],
    ["flags of a client that has no options", [uint32(2), optionMessage(option.startTls)]],
  ])("is required before %s, which ends the connection", async (_, message) => {
    const { uri, server } = await serve();
    const client = await NbdClient.connect(uri);
    await client.take(18);
    client.send(...message);
    await expect(client.take(1)).rejects.toThrow("the server ended the connection");
    expect(server.stats()).toMatchObject(counts);
  });

  it("begins once, by STARTTLS without data, and not after ABORT", async () => {
    const { uri } = await serve();
    const client = await NbdClient.connect(uri);
    await client.greet();
    client.send(optionMessage(option.startTls, Buffer.alloc(1)));
    expect((await client.optionReply()).type).toBe(optionReply.invalid);
    await client.startTls(trusting);
    client.send(optionMessage(option.startTls));
    expect((await client.optionReply()).type).toBe(optionReply.invalid);
    client.send(optionMessage(option.list));
    expect((await client.optionReply()).type).toBe(optionReply.server);
    const leaving = await NbdClient.connect(uri);
    await leaving.greet();
    leaving.send(optionMessage(option.abort));
    expect((await leaving.optionReply()).type).toBe(optionReply.ack);
    await leaving.ended();
  });
});

describe("plain text after STARTTLS", () => {
  /** Bytes that an attacker on the network path injects for the server. */
  const injected = Buffer.concat([
    optionMessage(option.structuredReply),
    goMessage("disk"),
    requestMessage({ type: command.write, bytes: 4096 }),
    Buffer.alloc(4096, "evil"),
  ]);

  it("that comes with it ends the connection, and nothing of it is read", async () => {
    const { uri, server, device } = await serve();
    const client = await NbdClient.connect(uri);
    await client.greet();
    client.send(optionMessage(option.startTls), injected);
    expect((await client.optionReply()).type).toBe(optionReply.ack);
    await expect(client.beginTls(trusting)).rejects.toThrow();
    await expect.poll(() => server.stats().inHandshake).toBe(0);
    expect(server.stats()).toMatchObject(counts);
    expect(await device.compare(0, Buffer.alloc(4096))).toBe(true);
  });

  it.each([1, 5, 16, injected.length])("of %i bytes that comes later does, too", async (length) => {
    const { uri, server, device } = await serve();
    const client = await NbdClient.connect(uri);
    await client.greet();
    client.send(optionMessage(option.startTls));
    expect((await client.optionReply()).type).toBe(optionReply.ack);
    client.send(injected.subarray(0, length));
    await expect(client.beginTls(trusting)).rejects.toThrow();
    await expect.poll(() => server.stats().inHandshake).toBe(0);
    expect(server.stats()).toMatchObject(counts);
    expect(await device.compare(0, Buffer.alloc(4096))).toBe(true);
  });

  it("is what a client does not send that begins TLS without waiting for the answer", async () => {
    const { uri } = await serve();
    const raw = connectSocket(pathOf(uri));
    let seen: Buffer = Buffer.alloc(0);
    const secured = connectTls({
      ...trusting,
      socket: new BehindPlain(raw, 18 + 20, (plain) => (seen = plain)),
    });
    await once(secured, "secureConnect");
    expect(seen.readUInt32BE(18 + 12)).toBe(optionReply.ack);
    secured.write(optionMessage(option.abort));
    const [reply] = (await once(secured, "data")) as [Buffer];
    expect(reply.readUInt32BE(12)).toBe(optionReply.ack);
    raw.destroy();
  });

  /** Sends flags and STARTTLS with the first bytes of TLS, and gives TLS what comes behind the answers. */
  class BehindPlain extends Duplex {
    readonly #raw: Duplex;
    #hasWritten = false;

    constructor(raw: Duplex, plainBytes: number, onPlain: (plain: Buffer) => void) {
      super();
      this.#raw = raw;
      let plain: Buffer | undefined = Buffer.alloc(0);
      raw.on("data", (chunk: Buffer) => {
        if (plain === undefined) return void this.push(chunk);
        plain = Buffer.concat([plain, chunk]);
        if (plain.length < plainBytes) return;
        onPlain(plain.subarray(0, plainBytes));
        if (plain.length > plainBytes) this.push(plain.subarray(plainBytes));
        plain = undefined;
      });
      raw.on("close", () => this.push(null));
    }

    override _read(): void {}
    override _write(chunk: Buffer, _encoding: string, done: (error?: Error | null) => void): void {
      const first = this.#hasWritten ? [] : [uint32(3), optionMessage(option.startTls)];
      this.#hasWritten = true;
      this.#raw.write(Buffer.concat([...first, chunk]), done);
    }
  }
});

describe("a client's certificate", () => {
  const revoked = authority.issue("revoked");
  const judging = {
    ...serverPair,
    ca: [other.cert, authority.cert],
    crl: [authority.revoke(revoked.cert), other.revoke()],
  };
  const stranger = new TestAuthority("the authority");

  it.each<[string, ConnectionOptions]>([
    ["that is missing", {}],
    ["of an authority that is not trusted", stranger.issue("client")],
    ["that is revoked", revoked],
  ])("%s lets nobody in", async (_, pair) => {
    const { uri, server } = await serve({ tls: judging });
    // A client of TLS 1.3 learns of the refusal only when it reads.
    const open = NbdClient.open(uri, { tls: { ...trusting, ...pair } });
    await expect(open).rejects.toThrow();
    const older = { ...trusting, ...pair, maxVersion: "TLSv1.2" } as const;
    await expect(NbdClient.open(uri, { tls: older })).rejects.toThrow();
    await expect.poll(() => server.stats().inHandshake).toBe(0);
    expect(server.stats()).toMatchObject(counts);
  });

  it.each([authority, other])("of each of the authorities does", async (issuer) => {
    const { uri } = await serve({ tls: judging });
    const client = await NbdClient.open(uri, { tls: { ...trusting, ...issuer.issue("client") } });
    expect((await client.read(0, 4096)).equals(Buffer.alloc(4096))).toBe(true);
  });
});

it("a server whose certificate is of another authority is refused by its clients", async () => {
  const { uri, server } = await serve({ tls: other.issue("server") });
  await expect(NbdClient.open(uri, { tls: trusting })).rejects.toThrow(/self-signed|unable to/);
  await expect.poll(() => server.stats().inHandshake).toBe(0);
});

describe("a handshake of TLS that stalls", () => {
  /** In TLS by the server's view, with so many bytes of a first message. */
  async function stalled(uri: string, length: number): Promise<NbdClient> {
    const client = await NbdClient.connect(uri);
    await client.greet();
    client.send(optionMessage(option.startTls));
    await client.optionReply();
    // A record of 512 bytes with a ClientHello of 508, of which the rest is missing.
    client.send(Buffer.from("16030102000100 01fc0303".replace(" ", ""), "hex").subarray(0, length));
    return client;
  }

  it.each([0, 3, 11])("after %i bytes ends when its time is over", async (length) => {
    const { uri, server } = await serve({ handshakeTimeoutMs: 100 });
    const client = await stalled(uri, length);
    await client.ended();
    expect(server.stats()).toMatchObject({ inHandshake: 0, refused: 1 });
  });

  it("ends when its client has gone", async () => {
    const { uri, server } = await serve();
    const gone = await stalled(uri, 11);
    gone.socket.destroy();
    const ending = await stalled(uri, 11);
    ending.socket.end();
    await ending.ended();
    await expect.poll(() => server.stats().inHandshake).toBe(0);
  });

  it("does not begin where the answer to STARTTLS finds nobody", async () => {
    const socket = new FakeSocket();
    const tls = new TlsUpgrade("test", resolveNested("test", "tls", serverPair, tlsFields));
    const options = { maxBytes: mib, counts: { ...counts }, tls, admit: () => true };
    const run = nbdConnection(socket, oneExport(nullDevice({ bytes })), options).run();
    socket._write = (_part, _encoding, done) => {
      socket.destroy();
      done();
    };
    socket.push(Buffer.concat([uint32(3), optionMessage(option.startTls)]));
    await run;
  });

  it("does not begin with a client that sends no more, which gets the answer to STARTTLS", async () => {
    const socket = new FakeSocket();
    const failed: Error[] = [];
    socket.on("error", (error) => failed.push(error));
    const tls = new TlsUpgrade("test", resolveNested("test", "tls", serverPair, tlsFields));
    const options = { maxBytes: mib, counts: { ...counts }, tls, admit: () => true };
    const run = nbdConnection(socket, oneExport(nullDevice({ bytes })), options).run();
    socket.push(Buffer.concat([uint32(3), optionMessage(option.startTls), optionMessage(option.list)]));
    socket.push(null);
    await run;
    const [, answer] = socket.sent;
    expect([answer?.readUInt32BE(8), answer?.readUInt32BE(12)]).toEqual([option.startTls, optionReply.ack]);
    expect([socket.sent.length, socket.destroyed, failed]).toEqual([2, true, []]);
  });

  it("makes room for others, and does not hold up the end of the server", async () => {
    const { uri, server } = await serve({ maxHandshakes: 16 });
    const silent = [];
    for (let count = 0; count < 50; count++) silent.push(await stalled(uri, (count % 3) * 5));
    const good = await NbdClient.open(uri, { tls: trusting });
    expect(await good.errorOf({ type: command.flush })).toBe(0);
    expect(server.stats().inHandshake).toBeLessThanOrEqual(16);
    await server.close();
    for (const client of silent) await client.ended();
  });
});

describe("a connection with TLS", () => {
  it("ends when its client stops within a write, and not while that goes on", async () => {
    const stallTimeoutMs = 400;
    const { uri, server } = await serve({ device: nullDevice({ bytes }), stallTimeoutMs });
    const client = await NbdClient.open(uri, { tls: trusting });
    const idle = await NbdClient.open(uri, { tls: trusting });
    client.send(requestMessage({ type: command.write, bytes: mib }));
    let left = mib;
    for (const end = performance.now() + 2 * stallTimeoutMs; performance.now() < end; left--) {
      client.send(Buffer.alloc(1));
      await new Promise((resolve) => setImmediate(resolve));
    }
    client.send(Buffer.alloc(left));
    expect((await client.chunk()).type).toBe(0);
    client.send(requestMessage({ type: command.write, bytes: mib }), Buffer.alloc(100));
    await client.ended();
    expect(await idle.errorOf({ type: command.flush })).toBe(0);
    expect(server.stats()).toMatchObject({ open: 1, refused: 1 });
  });

  it("takes bounded memory for a client that reads no answers, and ends", async () => {
    const { uri, server } = await serve({ device: nullDevice({ bytes }), stallTimeoutMs: 200 });
    const client = await NbdClient.open(uri, { tls: trusting });
    client.socket.pause();
    client.send(
      ...Array.from({ length: 100 }, () => requestMessage({ type: command.read, bytes: 32 * mib })),
    );
    await expect.poll(() => server.stats().refused, { timeout: 5000 }).toBe(1);
    expect(server.stats().open).toBe(0);
    client.socket.destroy();
  });

  it("gets the answers of what is under way when the server closes", async () => {
    const { uri, server } = await serve();
    const client = await NbdClient.open(uri, { tls: trusting });
    client.send(requestMessage({ type: command.write, bytes: 4096 }), Buffer.alloc(4096, 1));
    await expect.poll(() => server.stats().writes).toBe(1);
    const closed = server.close();
    expect((await client.chunk()).type).toBe(0);
    await client.ended();
    await closed;
  });

  it("goes on with its certificates when others have been read", async () => {
    let pair = serverPair;
    const { uri, server } = await serve({ tls: { cert: () => pair.cert, key: () => pair.key } });
    const early = await NbdClient.open(uri, { tls: trusting });
    pair = other.issue("server");
    server.reloadTls();
    await expect(NbdClient.open(uri, { tls: trusting })).rejects.toThrow();
    const late = await NbdClient.open(uri, { tls: { ...trusting, ca: other.cert } });
    pair = { ...pair, key: serverPair.key };
    expect(() => server.reloadTls()).toThrow("serveNbd: tls: OpenSSL cannot use the certificates: ");
    const latest = await NbdClient.open(uri, { tls: { ...trusting, ca: other.cert } });
    for (const client of [early, late, latest]) expect(await client.errorOf({ type: command.flush })).toBe(0);
  });
});

describe("serving with TLS", () => {
  it("at a port has a URI of its own", async () => {
    const { uri } = await serve({ port: 0 });
    expect(uri).toMatch(/^nbds:\/\/127\.0\.0\.1:\d+\/disk$/);
  });

  it("cannot be read again where there is none", async () => {
    const server = await serveNbd(nullDevice({ bytes }));
    servers.push(server);
    expect(() => server.reloadTls()).toThrow("reloadTls: the server has no tls");
  });

  it.each<[object, string]>([
    [{ tls: true }, "serveNbd: tls must be an object"],
    [{ tls: { cert: serverPair.cert } }, "serveNbd: tls.key is missing"],
    [{ tls: { ...serverPair, cert: 5 } }, "serveNbd: tls.cert must be PEM"],
    [{ tls: { ...serverPair, cert: () => 5 } }, "what serveNbd: tls.cert returns must be PEM"],
    [{ tls: { ...serverPair, passphrase: "x" } }, 'serveNbd: unknown option "tls.passphrase"'],
    [{ tls: { ...serverPair, cert: "x" } }, "serveNbd: tls: OpenSSL cannot use the certificates: "],
    [{ tls: { ...serverPair, key: other.issue("x").key } }, "serveNbd: tls: OpenSSL cannot use"],
    [{ tls: { ...serverPair, ca: "" } }, "serveNbd: tls.ca has no certificate in PEM"],
    [{ tls: { ...serverPair, crl: authority.revoke() } }, "serveNbd: tls.crl has no effect without ca"],
  ])("refuses options that are wrong: %#", async (options, message) => {
    const wrong = serveNbd(nullDevice({ bytes }), options);
    await expect(wrong).rejects.toThrow(message);
    await expect(wrong).rejects.not.toThrow(serverPair.key);
  });
});
