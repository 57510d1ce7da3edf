import { createHash, createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import { keyFor, type NvmeHash, type Secret } from "./secret.ts";

/** The names of the two ends of a queue. */
export interface Ends {
  readonly hostNqn: string;
  readonly subsystemNqn: string;
}

/** What both sides know of one run of the protocol. */
export interface Transaction extends Ends {
  readonly id: number;
  readonly hash: NvmeHash;
  /** What the exchange of keys gave. Undefined in the group null. */
  readonly shared: Buffer | undefined;
}

/** What one side asks the other. */
export interface Challenge {
  readonly bytes: Buffer;
  readonly sequence: number;
}

/** What the host answers to the controller's challenge. */
export const hostResponse = (transaction: Transaction, secret: Secret, challenge: Challenge): Buffer =>
  response(transaction, secret, challenge, [transaction.hostNqn, "HostHost", transaction.subsystemNqn]);

/** What the controller answers to the host's. */
export const controllerResponse = (transaction: Transaction, secret: Secret, challenge: Challenge): Buffer =>
  response(transaction, secret, challenge, [transaction.subsystemNqn, "Controller", transaction.hostNqn]);

/** The side that answers, its role, and its peer. */
type Roles = readonly [own: string, role: string, peer: string];

function response(
  { id, hash, shared }: Transaction,
  secret: Secret,
  { bytes, sequence }: Challenge,
  [own, role, peer]: Roles,
): Buffer {
  const challenge =
    shared === undefined
      ? bytes
      : createHmac(hash, createHash(hash).update(shared).digest()).update(bytes).digest();
  const numbers = Buffer.alloc(7); // the last byte: no secure channel
  numbers.writeUInt32LE(sequence, 0);
  numbers.writeUInt16LE(id, 4);
  return createHmac(hash, keyFor(secret, own))
    .update(challenge)
    .update(numbers)
    .update(role)
    .update(own)
    .update(Buffer.alloc(1))
    .update(peer)
    .digest();
}

/** Compares in constant time: the time does not reveal how many bytes are equal. */
export const isSame = (one: Buffer, other: Buffer): boolean =>
  one.length === other.length && timingSafeEqual(one, other);

let lastSequence = randomBytes(4).readUInt32LE();

/** The next number of this process. 0 means no challenge. */
export function nextSequence(): number {
  lastSequence = lastSequence === 0xffffffff ? 1 : lastSequence + 1;
  return lastSequence;
}
