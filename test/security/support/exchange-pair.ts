import { type Credentials, PskCredentials } from "../../../src/security/credential-options.ts";
import { type Identify, type Identity, identifyByName } from "../../../src/security/identity.ts";
import { TlsEndpoint } from "../../../src/security/tls-endpoint.ts";
import type { PeerProof, TlsExchange } from "../../../src/security/tls-exchange.ts";
import type { ExchangeRefusal } from "../../../src/security/tls-failure.ts";
import type { CertificateChain } from "../../../src/security/trust.ts";
import type { KeyPair } from "./authority.ts";

export type Flight = "connector" | "acceptor";

/** How one side of an exchange fared. */
export interface Outcome {
  identity: Identity | undefined;
  refused: string | undefined;
  /** What the other side is told of it. */
  told?: string;
  secret: Buffer | undefined;
  /** What the peer has shown. */
  chain: CertificateChain;
}

export interface Pair {
  readonly connector: Outcome;
  readonly acceptor: Outcome;
  /** Whose each flight was, and its bytes, in the order in which they were sent. */
  readonly flights: readonly { readonly from: Flight; readonly bytes: Buffer }[];
  close(): void;
}

export interface PairOptions {
  readonly name?: string;
  readonly context?: Uint8Array;
  /** Default: that of the connector. */
  readonly acceptorContext?: Uint8Array;
  /** What the path makes of a flight. Default: leaves it whole. */
  readonly onPath?: (flight: Buffer, index: number, from: Flight) => readonly Uint8Array[];
  readonly connectorEndpoint?: TlsEndpoint;
  readonly acceptorEndpoint?: TlsEndpoint;
}

export function tlsCredentials(pair: Partial<KeyPair>, ca: string, crl?: string): Credentials {
  const pem = (text?: string) => () => (text === undefined ? [] : [Buffer.from(text)]);
  return {
    kind: "tls",
    cert: pem(pair.cert),
    key: pem(pair.key),
    ca: pem(ca),
    crl: crl === undefined ? undefined : pem(crl),
  };
}

export function pskCredentials(
  identity: string,
  key: Uint8Array,
  lookup = (name: string) => (name === identity ? key : undefined),
): Credentials {
  return new PskCredentials({ identity, key }, lookup);
}

export const endpoint = (credentials: Credentials, identify: Identify = identifyByName): TlsEndpoint =>
  new TlsEndpoint(credentials, identify);

/**
 * Runs an exchange until both sides know how it went, or one is refused and nothing is under way any more. Nothing is
 * closed before.
 */
export async function exchange(
  connecting: TlsEndpoint,
  accepting: TlsEndpoint,
  {
    name = "node-1.example",
    context = new Uint8Array(8),
    acceptorContext = context,
    onPath = (flight) => [flight],
  }: PairOptions = {},
): Promise<Pair> {
  const flights: { from: Flight; bytes: Buffer }[] = [];
  const sides: { connector?: TlsExchange; acceptor?: TlsExchange } = {};
  let underWay = 0;
  const side = (from: Flight, to: Flight) => {
    const outcome: Outcome = { identity: undefined, refused: undefined, secret: undefined, chain: [] };
    const listener = {
      onFlight(bytes: Buffer) {
        const index = flights.push({ from, bytes }) - 1;
        for (const piece of onPath(bytes, index, from)) {
          underWay++;
          setImmediate(() => {
            underWay--;
            sides[to]?.take(piece);
          });
        }
      },
      onResult(result: PeerProof | ExchangeRefusal) {
        if ("refusal" in result) {
          outcome.refused = result.why;
          outcome.told = result.told ?? result.why;
          return;
        }
        outcome.identity = result.identity;
        outcome.chain = result.chain;
        outcome.secret = sides[from]?.exportSecret(from === "connector" ? context : acceptorContext);
      },
    };
    return { outcome, listener };
  };
  const connector = side("connector", "acceptor");
  const acceptor = side("acceptor", "connector");
  sides.acceptor = accepting.accept(acceptor.listener);
  sides.connector = connecting.connect(name, connector.listener);
  const settled = ({ identity, refused }: Outcome) => identity !== undefined || refused !== undefined;
  // Quiet for some turns of the loop: nothing follows that was not sent.
  for (let quiet = 0; quiet < 20; ) {
    await new Promise(setImmediate);
    const done = underWay === 0 && flights.length > 0;
    quiet = done ? quiet + (settled(connector.outcome) && settled(acceptor.outcome) ? 4 : 1) : 0;
  }
  return {
    connector: connector.outcome,
    acceptor: acceptor.outcome,
    flights,
    close() {
      sides.connector?.close();
      sides.acceptor?.close();
    },
  };
}
