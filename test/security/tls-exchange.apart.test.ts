import { X509Certificate } from "node:crypto";
import { connect, createSecureContext, createServer, TLSSocket } from "node:tls";
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { type Credentials, PskCredentials } from "../../src/security/credential-options.ts";
import { FlightStream } from "../../src/security/tls-exchange.ts";
import { Authority, stamp } from "./support/authority.ts";
import {
  endpoint,
  exchange,
  type Pair,
  type PairOptions,
  pskCredentials,
  tlsCredentials,
} from "./support/exchange-pair.ts";

const clientAlert = "A connector hears nothing of TLS 1.3's verdict on it by itself.";
let ca: Authority;
let other: Authority;
let server: Credentials;
let client: Credentials;
const pairs: Pair[] = [];

beforeAll(() => {
  ca = Authority.create("ca");
  other = Authority.create("other");
  const names = "DNS:node-1.example,URI:spiffe://cluster/node-1,IP:127.0.0.1";
  server = tlsCredentials(ca.issue("server", { names }), ca.cert);
  client = tlsCredentials(ca.issue("client", { names: "DNS:client-7.example" }), ca.cert);
});

afterAll(() => {
  ca.remove();
  other.remove();
});

afterEach(() => {
  for (const pair of pairs.splice(0)) pair.close();
});

async function run(connecting: Credentials, accepting: Credentials, options?: PairOptions): Promise<Pair> {
  const pair = await exchange(endpoint(connecting), endpoint(accepting), options);
  pairs.push(pair);
  return pair;
}

/** Nobody was proven at the acceptor, and it says why. */
function expectRefusedByAcceptor({ acceptor }: Pair, reason: string): void {
  expect(acceptor.refused, clientAlert).toContain(reason);
  expect(acceptor.identity).toBeUndefined();
  expect(acceptor.secret).toBeUndefined();
}

function expectRefusedByConnector({ connector, acceptor }: Pair, reason: string): void {
  expect(connector.refused).toContain(reason);
  expect(connector.secret).toBeUndefined();
  expect(acceptor.secret).toBeUndefined();
}

/** These give a server the leaf of a client's chain alone (nodejs/node#65579). */
const cutsChains = /^v(?:24\.21|26\.8)\./.test(process.version);

describe("a TLS exchange", () => {
  it("gives the chain that each side has shown, without the authority that has signed itself", async () => {
    const shown = ca.intermediate("first").intermediate("second").issue("far", { names: "DNS:far.example" });
    const { connector, acceptor } = await run(tlsCredentials(shown, ca.cert), server);
    const certificates = shown.cert.split(/(?=-----BEGIN)/).map((pem) => new X509Certificate(pem).raw);
    expect(certificates).toHaveLength(3);
    expect(acceptor.chain.map(Buffer.from)).toEqual(cutsChains ? certificates.slice(0, 1) : certificates);
    const cert = server.kind === "tls" ? (server.cert()[0] as Buffer) : "";
    expect(connector.chain.map(Buffer.from)).toEqual([new X509Certificate(cert).raw]);
  });

  // Each call of it leaks a certificate outside of the heap (Node 20.20), at peers that have proven themselves.
  it("never calls getPeerX509Certificate", async () => {
    const leaks = vi.spyOn(TLSSocket.prototype, "getPeerX509Certificate");
    const { acceptor, connector } = await run(client, server);
    expect([acceptor.secret, connector.secret]).not.toContain(undefined);
    expect(leaks).not.toHaveBeenCalled();
    leaks.mockRestore();
  });

  it("proves both sides by certificates, and gives both the same secret", async () => {
    const { connector, acceptor, flights } = await run(client, server);
    expect(connector.identity).toMatchObject({ kind: "certificate", name: "spiffe://cluster/node-1" });
    expect(acceptor.identity).toMatchObject({ kind: "certificate", name: "client-7.example" });
    expect(connector.secret).toHaveLength(32);
    expect(acceptor.secret).toEqual(connector.secret);
    expect(flights.map(({ from }) => from)).toEqual(["connector", "acceptor", "connector"]);
  });

  it("gives another secret for another context", async () => {
    const contexts = { context: Uint8Array.of(1), acceptorContext: Uint8Array.of(2) };
    const { connector, acceptor } = await run(client, server, contexts);
    expect(connector.secret).toHaveLength(32);
    expect(acceptor.secret).toHaveLength(32);
    expect(acceptor.secret).not.toEqual(connector.secret);
  });

  it.each(["rsa", "ed25519"] as const)("takes certificates of %s", async (algorithm) => {
    const pair = ca.issue(`${algorithm}-server`, { names: "DNS:node-1.example", algorithm });
    const { connector, acceptor } = await run(client, tlsCredentials(pair, ca.cert));
    expect(acceptor.secret).toEqual(connector.secret);
    expect(connector.secret).toHaveLength(32);
  });

  it("takes flights in pieces of one byte", async () => {
    const onPath = (flight: Buffer) => [...flight].map((byte) => Uint8Array.of(byte));
    const { connector, acceptor } = await run(client, server, { onPath });
    expect(acceptor.secret).toEqual(connector.secret);
    expect(connector.secret).toHaveLength(32);
  });

  it("says nothing of tickets, and leaves nothing behind that could be resumed", async () => {
    const { flights } = await run(client, server);
    // ServerHello to Finished is the acceptor's only flight.
    expect(flights.filter(({ from }) => from === "acceptor")).toHaveLength(1);
  });

  it("agrees with nobody when a bit of a flight was changed", async () => {
    const connecting = endpoint(client);
    const accepting = endpoint(server);
    for (let flight = 0; flight < 3; flight++) {
      for (let part = 0; part < 24; part++) {
        const onPath = (bytes: Buffer, index: number): Buffer[] => {
          const changed = Buffer.from(bytes);
          const at = Math.floor((part * bytes.length) / 24);
          if (index === flight) changed[at] = (changed[at] as number) ^ 1;
          return [changed];
        };
        const pair = await exchange(connecting, accepting, { onPath });
        pair.close();
        expect(pair.acceptor.secret, `flight ${flight}, part ${part}`).toBeUndefined();
      }
    }
  });
});

describe("what comes behind a handshake", () => {
  // A record of application data that nobody has sealed.
  const garbage = Buffer.concat([Buffer.of(0x17, 3, 3, 0, 32), Buffer.alloc(32, 9)]);

  it.each([
    ["acceptor", 1],
    ["connector", 2],
  ])("of the %s is no error that anybody has to catch", async (_, last) => {
    const onPath = (flight: Buffer, index: number) => (index === last ? [flight, garbage] : [flight]);
    const { connector, acceptor } = await run(client, server, { onPath });
    expect(connector.secret).toHaveLength(32);
    if (last === 2) expect(acceptor.secret).toEqual(connector.secret);
  });
});

describe("the acceptor refuses a connector", () => {
  it("of an authority that it does not trust", async () => {
    const foreign = tlsCredentials(other.issue("foreign", { names: "DNS:client-7.example" }), ca.cert);
    expectRefusedByAcceptor(await run(foreign, server), "authority that is not trusted");
  });

  it("of an authority that it does not trust, whatever the environment says", async () => {
    process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0";
    try {
      const foreign = tlsCredentials(other.issue("foreign-2", { names: "DNS:client-7.example" }), ca.cert);
      expectRefusedByAcceptor(await run(foreign, server), "authority that is not trusted");
      const impostor = tlsCredentials(other.issue("impostor", { names: "DNS:node-1.example" }), ca.cert);
      expectRefusedByConnector(await run(client, impostor), "authority that is not trusted");
    } finally {
      delete process.env.NODE_TLS_REJECT_UNAUTHORIZED;
    }
  });

  it.each([
    ["that has expired", { from: "20200101000000Z", to: "20210101000000Z" }, "has expired"],
    ["that is not valid yet", { from: stamp(5) }, "is not valid yet"],
    ["for servers only", { usage: "serverAuth" }, "usage of the certificate"],
  ])("with a certificate %s", async (name, options, reason) => {
    const pair = ca.issue(`client-${name.replaceAll(" ", "-")}`, {
      names: "DNS:client-7.example",
      ...options,
    });
    expectRefusedByAcceptor(await run(tlsCredentials(pair, ca.cert), server), reason);
  });

  it("with a revoked certificate, as soon as there is a list, and takes the others", async () => {
    const revoked = tlsCredentials(ca.issue("revoked", { names: "DNS:client-8.example" }), ca.cert);
    expect((await run(revoked, server)).acceptor.secret).toHaveLength(32);
    ca.revoke("revoked");
    const pair = ca.issue("server-with-list", { names: "DNS:node-1.example" });
    const strict = tlsCredentials(pair, ca.cert, ca.crl);
    expectRefusedByAcceptor(await run(revoked, strict), "is revoked");
    expect((await run(client, strict)).acceptor.secret).toHaveLength(32);
  });

  it("with a certificate that another leaf has signed", async () => {
    ca.issue("leaf", { names: "DNS:leaf.example" });
    const pair = ca.asAuthority("leaf").issue("below", { names: "DNS:client-7.example" });
    expectRefusedByAcceptor(await run(tlsCredentials(pair, ca.cert), server), "no authority");
  });

  it("without a certificate", async () => {
    expectRefusedByAcceptor(await run(tlsCredentials({}, ca.cert), server), "no certificate was shown");
  });

  it("whose certificate has no name that counts, or whose name cannot be found", async () => {
    const nameless = tlsCredentials(ca.issue("nameless"), ca.cert);
    expectRefusedByAcceptor(await run(nameless, server), "no name that counts");
    const accepting = endpoint(server, () => {
      throw new Error("no such node");
    });
    const pair = await exchange(endpoint(client), accepting);
    pairs.push(pair);
    expectRefusedByAcceptor(pair, "no such node");
  });

  it("of a long chain only when a link of it is missing", async () => {
    const far = ca.intermediate("first").intermediate("second").intermediate("third");
    const pair = far.issue("far", { names: "DNS:client-9.example" });
    const { acceptor } = await run(tlsCredentials(pair, ca.cert), server);
    expect(acceptor.identity).toMatchObject({ name: "client-9.example" });
    const missing = pair.cert.replace(ca.certificateOf("second"), "");
    expect(missing).not.toBe(pair.cert);
    const cut = tlsCredentials({ cert: missing, key: pair.key }, ca.cert);
    expectRefusedByAcceptor(await run(cut, server), "authority that is not trusted");
  });

  it("below an authority in the middle that has expired", async () => {
    const past = { from: "20200101000000Z", to: "20210101000000Z" };
    const pair = ca.intermediate("past", past).issue("below", { names: "DNS:client-9.example" });
    expectRefusedByAcceptor(await run(tlsCredentials(pair, ca.cert), server), "has expired");
  });
});

describe("the connector refuses an acceptor", () => {
  it("of an authority that it does not trust", async () => {
    const impostor = tlsCredentials(other.issue("impostor-2", { names: "DNS:node-1.example" }), ca.cert);
    expectRefusedByConnector(await run(client, impostor), "authority that is not trusted");
  });

  it.each([
    ["that has expired", { from: "20200101000000Z", to: "20210101000000Z" }, "has expired"],
    ["for clients only", { usage: "clientAuth" }, "usage of the certificate"],
  ])("with a certificate %s", async (name, options, reason) => {
    const pair = ca.issue(`server-${name.replaceAll(" ", "-")}`, { names: "DNS:node-1.example", ...options });
    expectRefusedByConnector(await run(client, tlsCredentials(pair, ca.cert)), reason);
  });

  it.each(["node-1.example", "127.0.0.1", "spiffe://cluster/node-1"])("that proves %s, not", async (name) => {
    const { connector, acceptor } = await run(client, server, { name });
    expect(connector.refused).toBeUndefined();
    expect(acceptor.secret).toEqual(connector.secret);
  });

  it.each(["node-2.example", "127.0.0.2", "::1", "spiffe://cluster/node-2", "localhost", "server"])(
    "that does not prove the name %j",
    async (name) => {
      const pair = await run(client, server, { name });
      expect(pair.connector.refused).toContain(`does not prove the name ${name}`);
      expect(pair.connector.secret).toBeUndefined();
    },
  );

  it("with a CN alone: that proves no name", async () => {
    for (const names of [undefined, "URI:spiffe://cluster/x"]) {
      const pair = ca.issue("node-1.example", names === undefined ? {} : { names });
      const { connector } = await run(client, tlsCredentials(pair, ca.cert));
      expect(connector.refused).toContain("does not prove the name node-1.example");
    }
  });
});

describe("the application protocol", () => {
  it.each([
    ["none", undefined, "does not speak cinnabar/1"],
    ["another", ["h2"], "does not speak cinnabar/1"],
  ])("must be offered: %s is refused", async (_name, ALPNProtocols, reason) => {
    const { cert, key } = ca.issue("client-alpn", { names: "DNS:client-7.example" });
    let refused = "";
    let proven = false;
    const acceptor = endpoint(server).accept({
      onFlight: (bytes) => setImmediate(() => stream.receive(bytes)),
      onResult: (result) => {
        if ("refusal" in result) refused = result.why;
        else proven = true;
      },
    });
    const stream = new FlightStream((bytes) => setImmediate(() => acceptor.take(bytes)));
    const context = createSecureContext({ cert, key, ca: ca.cert, minVersion: "TLSv1.3" });
    const socket = connect({
      socket: stream,
      secureContext: context,
      servername: "node-1.example",
      ...(ALPNProtocols === undefined ? {} : { ALPNProtocols }),
    });
    socket.on("error", () => {});
    await vi.waitFor(() => expect(refused).toContain(reason), { timeout: 20_000 });
    expect(proven).toBe(false);
    acceptor.close();
    socket.destroy();
  });
});

describe("the application protocol of an acceptor", () => {
  it("must be this one: one that has none is refused", async () => {
    const { cert, key } = ca.issue("server-alpn", { names: "DNS:node-1.example" });
    const accepting = createServer({ cert, key, ca: ca.cert, requestCert: true, minVersion: "TLSv1.3" });
    accepting.on("secureConnection", (socket) => socket.on("error", () => {}));
    accepting.on("tlsClientError", () => {});
    let refused = "";
    let proven = false;
    const connector = endpoint(client).connect("node-1.example", {
      onFlight: (bytes) => setImmediate(() => stream.receive(bytes)),
      onResult: (result) => {
        if ("refusal" in result) refused = result.why;
        else proven = true;
      },
    });
    const stream = new FlightStream((bytes) => setImmediate(() => connector.take(bytes)));
    accepting.emit("connection", stream);
    await vi.waitFor(() => expect(refused).toContain("does not speak cinnabar/1"), 20_000);
    expect(proven).toBe(false);
    connector.close();
    stream.destroy();
  });
});

describe("a pre-shared key", () => {
  const key = Buffer.alloc(32, 7);
  const psk = pskCredentials("pair-1", key);

  it("proves both sides", async () => {
    const { connector, acceptor } = await run(psk, psk);
    expect(connector.identity).toEqual({ kind: "psk", name: "pair-1" });
    expect(acceptor.identity).toEqual({ kind: "psk", name: "pair-1" });
    expect(acceptor.secret).toEqual(connector.secret);
    expect(connector.secret).toHaveLength(32);
  });

  it("is offered with its two suites alone, so that no certificate can be chosen", async () => {
    const { flights } = await run(psk, psk);
    const hello = flights[0]?.bytes as Buffer;
    // Headers of the record and of the message, version, random; then the session's id, and the suites behind it.
    const at = 5 + 4 + 2 + 32;
    const suites = at + 1 + (hello[at] as number);
    const length = hello.readUInt16BE(suites);
    const offered = hello.subarray(suites + 2, suites + 2 + length).toString("hex");
    expect(
      offered
        .match(/..../g)
        ?.filter((suite) => suite.startsWith("13"))
        .sort(),
    ).toEqual(["1301", "1303"]);
  });

  it("must be the same at both sides, and known", async () => {
    expectRefusedByAcceptor(await run(pskCredentials("pair-1", Buffer.alloc(32, 8)), psk), "keys differ");
    expectRefusedByAcceptor(await run(pskCredentials("pair-2", key), psk), "key is not known");
    const failing = pskCredentials("pair-1", key, () => {
      throw new Error("the key server is away");
    });
    expectRefusedByAcceptor(await run(psk, failing), "the key server is away");
  });

  it("tells strangers nothing of which identities exist: neither in words nor in the flights of TLS", async () => {
    const wrongKey = await run(pskCredentials("pair-1", Buffer.alloc(32, 8)), psk);
    const unknown = await run(pskCredentials("pair-2", key), psk);
    expect(unknown.acceptor.told).toBe(wrongKey.acceptor.told);
    const answers = ({ flights }: typeof unknown) =>
      flights.filter(({ from }) => from === "acceptor").map(({ bytes }) => bytes.toString("hex"));
    expect(answers(unknown)).toEqual(answers(wrongKey));
  });

  it("never gives way to a certificate, nor the reverse", async () => {
    const pskToTls = await run(psk, server);
    expect(pskToTls.connector.secret).toBeUndefined();
    expect(pskToTls.acceptor.secret).toBeUndefined();
    expect(pskToTls.connector.refused ?? pskToTls.acceptor.refused).toBeDefined();
    const tlsToPsk = await run(client, psk);
    expect(tlsToPsk.connector.secret).toBeUndefined();
    expectRefusedByAcceptor(tlsToPsk, "one side has certificates, the other a pre-shared key");
  });

  it("of an engine that is only looked up does not connect", () => {
    const accepting = endpoint(new PskCredentials(undefined, () => key));
    const connect = () => accepting.connect("x", { onFlight() {}, onResult() {} });
    expect(connect).toThrow("can only be connected to");
  });
});
