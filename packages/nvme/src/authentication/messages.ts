// The messages of DH-HMAC-CHAP. All numbers are little-endian, values of groups big-endian.
import { dhGroupNames, dhValueBytes, type NvmeDhGroup } from "./dh-groups.ts";
import { type Challenge, nextSequence } from "./responses.ts";
import { digestBytes, hashNames, type NvmeHash } from "./secret.ts";

/** SECP, SPSP0 and SPSP1 of the commands: the protocol that has these messages. */
export const securityProtocol = { secp: 0xe9, spsp0: 1, spsp1: 1 } as const;

/** The longest data of a command. Messages are shorter; hosts ask for 4,096. */
export const maxMessageBytes = 8192;

/** AUTH_TYPE in the upper byte, AUTH_ID in the lower one. */
export const kind = {
  negotiate: 0x0000,
  failure2: 0x00f0,
  failure1: 0x00f1,
  challenge: 0x0101,
  reply: 0x0102,
  success1: 0x0103,
  success2: 0x0104,
} as const;

/** The explanation codes of a failure. */
export const failure = {
  failed: 1,
  protocolUnusable: 2,
  channelMismatch: 3,
  hashUnusable: 4,
  groupUnusable: 5,
  payload: 6,
  message: 7,
} as const;

export type Failure = (typeof failure)[keyof typeof failure];

const dhChap = 1;
const descriptorBytes = 64;
/** How many identifiers of each kind a descriptor may have, and where those of groups begin. */
const maxIds = 30;

const headBytes = { negotiate: 8, challenge: 16, reply: 16, success1: 16, success2: 16, failure: 8 } as const;

/** The kind of a message and the number of its run. Undefined for a message that is too short. */
export const kindOf = (message: Buffer): { readonly kind: number; readonly id: number } | undefined =>
  message.length < 8 ? undefined : { kind: message.readUInt16BE(0), id: message.readUInt16LE(4) };

function newMessage(what: number, id: number, bytes: number): Buffer {
  const message = Buffer.alloc(bytes);
  message.writeUInt16BE(what, 0);
  message.writeUInt16LE(id, 4);
  return message;
}

/** What a host offers. */
export interface Offer {
  readonly hashes: readonly NvmeHash[];
  readonly dhGroups: readonly NvmeDhGroup[];
}

export function negotiateMessage(id: number, { hashes, dhGroups }: Offer): Buffer {
  const message = newMessage(kind.negotiate, id, headBytes.negotiate + descriptorBytes);
  message[7] = 1;
  const descriptor = message.subarray(headBytes.negotiate);
  descriptor[0] = dhChap;
  descriptor[2] = hashes.length;
  descriptor[3] = dhGroups.length;
  for (const [index, hash] of hashes.entries()) descriptor[4 + index] = hashNames.indexOf(hash) + 1;
  for (const [index, group] of dhGroups.entries())
    descriptor[4 + maxIds + index] = dhGroupNames.indexOf(group);
  return message;
}

/** The host's offers that this side supports, or the failure if it supports no offer. */
export function parseNegotiate(message: Buffer): Offer | Failure {
  const count = message.readUInt8(7);
  if (count === 0 || message.length !== headBytes.negotiate + count * descriptorBytes) return failure.payload;
  if (message.readUInt8(6) !== 0) return failure.channelMismatch;
  for (let at: number = headBytes.negotiate; at < message.length; at += descriptorBytes) {
    const descriptor = message.subarray(at, at + descriptorBytes);
    if (descriptor[0] !== dhChap) continue;
    const [hashCount, groupCount] = [descriptor.readUInt8(2), descriptor.readUInt8(3)];
    if (hashCount === 0 || hashCount > maxIds || groupCount === 0 || groupCount > maxIds)
      return failure.payload;
    const named = <T>(names: readonly T[], from: number, ids: number, first: number): readonly T[] =>
      [...descriptor.subarray(from, from + ids)].flatMap((id) => names[id - first] ?? []);
    return {
      hashes: named(hashNames, 4, hashCount, 1),
      dhGroups: named(dhGroupNames, 4 + maxIds, groupCount, 0),
    };
  }
  return failure.protocolUnusable;
}

/** The controller's challenge. */
export interface ChallengeFields {
  readonly hash: NvmeHash;
  readonly dhGroup: NvmeDhGroup;
  readonly challenge: Challenge;
  /** Empty in the group null. */
  readonly dhValue: Buffer;
}

/** How long a challenge will be. */
export const challengeBytes = ({ hash, dhGroup }: Pick<ChallengeFields, "hash" | "dhGroup">): number =>
  headBytes.challenge + digestBytes[hash] + dhValueBytes(dhGroup);

export function challengeMessage(id: number, { hash, dhGroup, challenge, dhValue }: ChallengeFields): Buffer {
  const { bytes, sequence } = challenge;
  const message = newMessage(kind.challenge, id, headBytes.challenge + bytes.length + dhValue.length);
  message[6] = bytes.length;
  message[8] = hashNames.indexOf(hash) + 1;
  message[9] = dhGroupNames.indexOf(dhGroup);
  message.writeUInt16LE(dhValue.length, 10);
  message.writeUInt32LE(sequence, 12);
  bytes.copy(message, 16);
  dhValue.copy(message, 16 + bytes.length);
  return message;
}

/** @param message with zeroes behind it, as long as the host has asked for */
export function parseChallenge(message: Buffer): ChallengeFields | Failure {
  const hash = hashNames[message.readUInt8(8) - 1];
  const dhGroup = dhGroupNames[message.readUInt8(9)];
  if (hash === undefined) return failure.hashUnusable;
  if (dhGroup === undefined) return failure.groupUnusable;
  const [hashBytes, valueBytes] = [message.readUInt8(6), message.readUInt16LE(10)];
  if (hashBytes !== digestBytes[hash] || valueBytes !== dhValueBytes(dhGroup)) return failure.payload;
  return {
    hash,
    dhGroup,
    challenge: { bytes: message.subarray(16, 16 + hashBytes), sequence: message.readUInt32LE(12) },
    dhValue: message.subarray(16 + hashBytes, 16 + hashBytes + valueBytes),
  };
}

/** The host's answer. */
export interface ReplyFields {
  readonly response: Buffer;
  /** The host asks for the same. */
  readonly challenge: Challenge | undefined;
  readonly dhValue: Buffer;
}

export function replyMessage(id: number, { response, challenge, dhValue }: ReplyFields): Buffer {
  const { length } = response;
  const message = newMessage(kind.reply, id, headBytes.reply + 2 * length + dhValue.length);
  message[6] = length;
  message[8] = challenge === undefined ? 0 : 1;
  message.writeUInt16LE(dhValue.length, 10);
  // With 0 the challenge would be for a TLS key alone.
  message.writeUInt32LE(challenge?.sequence ?? nextSequence(), 12);
  response.copy(message, 16);
  challenge?.bytes.copy(message, 16 + length);
  dhValue.copy(message, 16 + 2 * length);
  return message;
}

export function parseReply(
  message: Buffer,
  { hash, dhGroup }: Pick<ChallengeFields, "hash" | "dhGroup">,
): ReplyFields | Failure {
  const length = digestBytes[hash];
  const valueBytes = dhValueBytes(dhGroup);
  const bytes = headBytes.reply + 2 * length + valueBytes;
  if (message.length !== bytes || message[6] !== length || message.readUInt16LE(10) !== valueBytes)
    return failure.payload;
  const sequence = message.readUInt32LE(12);
  // Without a number the challenge is for a TLS key alone.
  const isAsked = (message.readUInt8(8) & 1) === 1 && sequence !== 0;
  return {
    response: message.subarray(16, 16 + length),
    challenge: isAsked ? { bytes: message.subarray(16 + length, 16 + 2 * length), sequence } : undefined,
    dhValue: message.subarray(16 + 2 * length),
  };
}

/** @param response to the host's challenge, where there was one */
export function success1Message(id: number, hash: NvmeHash, response: Buffer | undefined): Buffer {
  const message = newMessage(kind.success1, id, headBytes.success1 + (response?.length ?? 0));
  message[6] = digestBytes[hash];
  message[8] = response === undefined ? 0 : 1;
  response?.copy(message, 16);
  return message;
}

/** The controller's response, where it has one. */
export function parseSuccess1(message: Buffer, hash: NvmeHash): Buffer | undefined {
  const length = digestBytes[hash];
  return message[6] === length && (message.readUInt8(8) & 1) === 1
    ? message.subarray(16, 16 + length)
    : undefined;
}

export const success2Message = (id: number): Buffer => newMessage(kind.success2, id, headBytes.success2);

export const isSuccess2 = ({ length }: Buffer): boolean => length === headBytes.success2;

export function failureMessage(what: typeof kind.failure1 | typeof kind.failure2, id: number, why: Failure) {
  const message = newMessage(what, id, headBytes.failure);
  message[6] = 1;
  message[7] = why;
  return message;
}

export const explanationOf = (message: Buffer): number => message.readUInt8(7);
