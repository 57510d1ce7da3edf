import type { Duplex } from "node:stream";
import type { TLSSocket } from "node:tls";
import { boolean, checkedBy, required } from "cinnabar/options";
import type { Ends } from "../authentication/responses.ts";
import { TlsAcceptor } from "../socket/tls-acceptor.ts";
import { type TlsKey, tlsKeyField } from "./key.ts";
import { parameters } from "./parameters.ts";
import { knownKey, preSharedKey } from "./pre-shared-key.ts";

/** A host offers one identity, and the same one again if the target asks for a hello with another key share. */
const maxIdentities = 2;

/** TLS of a target of NVMe/TCP. */
export interface NvmeTargetTls {
  /**
   * The key of each host, by its NQN: what `makeTlsKey` or `nvme gen-tls-key` gives, of 32 bytes. The host has the same.
   */
  readonly keys: Readonly<Record<string, string>>;
  /** Hosts that have no key here may connect without TLS. Default: false, and they are refused. */
  readonly allowPlaintext?: boolean | undefined;
}

/** The names are parts of an identity, with spaces between them. */
const isNqn = (text: string): boolean => /^nqn\.\S+$/u.test(text) && Buffer.byteLength(text) <= 223;

const keysField = checkedBy((where, name, value): ReadonlyMap<string, TlsKey> => {
  // The value is not shown: it has keys.
  if (typeof value !== "object" || value === null || Array.isArray(value) || value instanceof Map)
    throw new TypeError(`${where}: ${name} must be an object with a key for the NQN of each host`);
  const keys = Object.entries(value).map(([nqn, key]) => {
    if (!isNqn(nqn))
      throw new TypeError(
        `${where}: a name in ${name} must be an NVMe qualified name of at most 223 bytes without spaces`,
      );
    return [nqn, tlsKeyField.resolve(where, `${name}[${JSON.stringify(nqn)}]`, key) as TlsKey] as const;
  });
  if (keys.length === 0) throw new TypeError(`${where}: ${name} must have the key of one host at least`);
  return new Map(keys);
});

export const targetTlsFields = { keys: required(keysField), allowPlaintext: boolean(false) };

/** A connection over TLS, and the two names that its key has proved. */
export interface Secured {
  readonly socket: TLSSocket;
  readonly ends: Ends;
}

/** The keys of a target's hosts. TLS takes over connections with them. */
export class TargetKeys {
  readonly allowsPlaintext: boolean;
  readonly #keys: ReadonlyMap<string, TlsKey>;
  readonly #acceptor: TlsAcceptor;
  /** The names in the identity that each connection has chosen. They are proved when its handshake is done. */
  readonly #named = new WeakMap<TLSSocket, Ends>();
  /** How many identities each connection has offered. */
  readonly #offered = new WeakMap<TLSSocket, number>();

  constructor(keys: ReadonlyMap<string, TlsKey>, allowsPlaintext: boolean) {
    this.#keys = keys;
    this.allowsPlaintext = allowsPlaintext;
    // OpenSSL has no certificate here. So a host whose key is unknown or wrong completes no handshake.
    // Linux ends a connection on which a message of the handshake, such as a ticket, follows the handshake.
    this.#acceptor = new TlsAcceptor(
      { ...parameters, pskCallback: (socket, identity) => this.#find(socket, identity) },
      false,
    );
  }

  has(hostNqn: string): boolean {
    return this.#keys.has(hostNqn);
  }

  /** @throws RangeError or TypeError where names of a host and of a subsystem do not fit into an identity. */
  check(where: string, subsystemNqn: string, mayConnect: (hostNqn: string) => boolean): void {
    if (!isNqn(subsystemNqn))
      throw new TypeError(`${where}: with tls, the name of a subsystem must have no spaces: ${subsystemNqn}`);
    for (const [hostNqn, key] of this.#keys)
      if (mayConnect(hostNqn) && preSharedKey(key, { hostNqn, subsystemNqn }, 0) === undefined)
        throw new RangeError(
          `${where}: with tls, the names of a host and of its subsystem have at most 245 bytes together: ${hostNqn} ${subsystemNqn}`,
        );
  }

  /** Undefined where the host has not proved its key, or has gone. */
  async accept(socket: Duplex): Promise<Secured | undefined> {
    const secured = await this.#acceptor.accept(socket);
    const ends = secured && this.#named.get(secured);
    if (secured === undefined || (ends !== undefined && secured.isSessionReused()))
      return secured && ends && { socket: secured, ends };
    secured.destroy();
    return undefined;
  }

  #find(socket: TLSSocket, identity: string): Buffer | null {
    // A hello of a stranger may have hundreds of them, and OpenSSL asks for each.
    const offered = (this.#offered.get(socket) ?? 0) + 1;
    this.#offered.set(socket, offered);
    if (offered > maxIdentities) return null;
    const [, hostNqn = "", subsystemNqn = ""] = identity.split(" ");
    const key = this.#keys.get(hostNqn);
    if (key === undefined) return null;
    const ends = { hostNqn, subsystemNqn };
    const chosen = knownKey(key, ends, identity);
    if (chosen === undefined) return null;
    this.#named.set(socket, ends);
    return chosen.psk;
  }
}
