import { randomBytes, randomInt } from "node:crypto";
import { DhExchange, dhGroupNames } from "./dh-groups.ts";
import {
  explanationOf,
  type Failure,
  failure,
  failureMessage,
  kind,
  kindOf,
  negotiateMessage,
  parseChallenge,
  parseSuccess1,
  replyMessage,
  success2Message,
} from "./messages.ts";
import {
  type Challenge,
  controllerResponse,
  type Ends,
  hostResponse,
  isSame,
  nextSequence,
} from "./responses.ts";
import { digestBytes, hashNames, type Secret } from "./secret.ts";

/** The secrets of a host. */
export interface HostSecrets {
  readonly secret: Secret;
  /** The target must prove this secret. */
  readonly controllerSecret: Secret | undefined;
}

/** Carries messages: one command of the queue for each. */
export interface MessageWay {
  send(message: Buffer): Promise<void>;
  /** Fills a buffer with the next message of the controller, and zeroes. */
  get(into: Buffer): Promise<void>;
}

/** The longest message. */
const receivedBytes = 4096;

/** The reason of a failure, by the controller's explanation code. */
const explanations: Readonly<Record<number, string>> = {
  [failure.failed]: "it has another one, or none to prove itself by",
  [failure.protocolUnusable]: "it does not have DH-HMAC-CHAP",
  [failure.channelMismatch]: "it wants a secure channel",
  [failure.hashUnusable]: "it takes none of this host's hash functions",
  [failure.groupUnusable]: "it takes none of this host's groups",
  [failure.payload]: "it found a message malformed",
  [failure.message]: "it did not expect a message",
};

/** A run of the protocol that this host gives up. */
class HostFailure extends Error {
  readonly why: Failure;

  constructor(why: Failure, message: string) {
    super(message);
    this.why = why;
  }
}

/**
 * Proves the secret of a host to the controller of a queue, and has the controller prove its own.
 *
 * @throws Error with the reason. The queue cannot be used then.
 */
export async function authenticate(
  way: MessageWay,
  ends: Ends,
  { secret, controllerSecret }: HostSecrets,
): Promise<void> {
  const id = randomInt(0x1_0000);
  await way.send(negotiateMessage(id, { hashes: hashNames, dhGroups: dhGroupNames }));
  try {
    const asked = parseChallenge(await next(way, id, kind.challenge));
    if (typeof asked === "number") throw new HostFailure(asked, broken("a challenge"));
    const { hash, dhGroup, dhValue } = asked;
    const exchange = dhGroup === "null" ? undefined : await DhExchange.begin(dhGroup, ends.hostNqn);
    const shared = await exchange?.secretWith(dhValue);
    if (exchange !== undefined && shared === undefined)
      throw new HostFailure(failure.payload, broken("a value of its group"));
    const transaction = { id, hash, shared, ...ends };
    const response = hostResponse(transaction, secret, asked.challenge);
    const challenge: Challenge | undefined = controllerSecret && {
      bytes: randomBytes(digestBytes[hash]),
      sequence: nextSequence(),
    };
    await way.send(replyMessage(id, { response, challenge, dhValue: exchange?.value ?? Buffer.alloc(0) }));
    const success = await next(way, id, kind.success1);
    if (challenge === undefined || controllerSecret === undefined) return;
    const found = parseSuccess1(success, hash);
    if (found === undefined || !isSame(controllerResponse(transaction, controllerSecret, challenge), found))
      throw new HostFailure(failure.failed, "the target did not prove that it has controllerSecret");
    await way.send(success2Message(id));
  } catch (error) {
    // The controller ends the queue when it gets this message.
    if (error instanceof HostFailure)
      await way.send(failureMessage(kind.failure2, id, error.why)).catch(() => {});
    throw error;
  }
}

/** The controller's next message, which must be of a kind. */
async function next(way: MessageWay, id: number, expected: number): Promise<Buffer> {
  const message = Buffer.alloc(receivedBytes);
  await way.get(message);
  const named = kindOf(message);
  if (named?.kind === kind.failure1) {
    const explanation = explanationOf(message);
    throw new Error(
      `the target refused the secret of this host: ${explanations[explanation] ?? `explanation ${explanation}`}`,
    );
  }
  if (named?.kind !== expected || named.id !== id)
    throw new HostFailure(failure.message, broken("a message of authentication"));
  return message;
}

const broken = (what: string): string => `the target broke the protocol: wrong ${what}`;
