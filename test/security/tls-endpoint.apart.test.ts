import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Credentials } from "../../src/security/credential-options.ts";
import type { TlsEndpoint } from "../../src/security/tls-endpoint.ts";
import { Authority } from "./support/authority.ts";
import { endpoint, exchange, tlsCredentials } from "./support/exchange-pair.ts";

const server = { names: "DNS:node-1.example" };
let ca: Authority;
let other: Authority;

beforeAll(() => {
  ca = Authority.create("ca");
  other = Authority.create("other");
});

afterAll(() => {
  ca.remove();
  other.remove();
});

/** The name of the connector as the acceptor knows it, or why it refuses it. */
async function verdict(connecting: TlsEndpoint, accepting: TlsEndpoint): Promise<string> {
  const { acceptor, connector, close } = await exchange(connecting, accepting);
  close();
  const identity = acceptor.identity;
  if (identity !== undefined) expect(acceptor.secret).toEqual(connector.secret);
  return identity?.kind === "certificate" ? identity.name : (acceptor.refused ?? "");
}

describe("an endpoint", () => {
  it("reads its files again when it is told to, and only then", async () => {
    const client = endpoint(tlsCredentials(ca.issue("c", { names: "DNS:c.example" }), ca.cert));
    const pair = ca.issue("s", server);
    let reads = 0;
    let trusted = other.cert;
    const accepting = endpoint({
      ...tlsCredentials(pair, ca.cert),
      ca: () => {
        reads++;
        return [Buffer.from(trusted)];
      },
    } as Credentials);
    expect(await verdict(client, accepting)).toContain("authority that is not trusted");
    trusted = ca.cert;
    expect(await verdict(client, accepting)).toContain("authority that is not trusted");
    accepting.reload();
    expect(await verdict(client, accepting)).toBe("c.example");
    expect(reads).toBe(2);
  });

  it("keeps what it has when a reload fails", async () => {
    const client = endpoint(tlsCredentials(ca.issue("c", { names: "DNS:c.example" }), ca.cert));
    let key = "";
    const pair = ca.issue("s", server);
    const accepting = endpoint({
      ...tlsCredentials(pair, ca.cert),
      key: () => [Buffer.from(key === "" ? pair.key : key)],
    } as Credentials);
    key = ca.issue("another", server).key;
    expect(() => accepting.reload()).toThrow("OpenSSL cannot use the certificates");
    expect(await verdict(client, accepting)).toBe("c.example");
  });

  it("says what is wrong with its files, and shows none of them", () => {
    const pair = ca.issue("s", server);
    expect(() => endpoint(tlsCredentials({ ...pair, key: "nonsense" }, ca.cert))).toThrow(TypeError);
    expect(() => endpoint(tlsCredentials(pair, ""))).toThrow("security.tls.ca has no certificate");
  });

  it("never takes one peer for another, whatever becomes of exchanges around it", async () => {
    const accepting = endpoint(tlsCredentials(ca.issue("s", server), ca.cert));
    const names = Array.from({ length: 8 }, (_, i) => `c${i}.example`);
    const clients = names.map((name) =>
      endpoint(tlsCredentials(ca.issue(name, { names: `DNS:${name}` }), ca.cert)),
    );
    const foreign = endpoint(tlsCredentials(other.issue("f", { names: "DNS:c0.example" }), ca.cert));
    for (let round = 0; round < 5; round++) {
      const verdicts = clients.map((client) => verdict(client, accepting));
      const refused = verdict(foreign, accepting);
      // Given up in the middle: the server of this exchange tells of it later.
      const abandoned = accepting.accept({
        onFlight() {},
        onResult: () => expect.unreachable(),
      });
      const connecting = (clients[0] as TlsEndpoint).connect("node-1.example", {
        onFlight: (bytes) => abandoned.take(bytes),
        onResult() {},
      });
      setImmediate(() => {
        abandoned.close();
        connecting.close();
      });
      expect(await Promise.all(verdicts)).toEqual(names);
      expect(await refused).toContain("authority that is not trusted");
    }
  });
});
