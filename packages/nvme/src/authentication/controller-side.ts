import { randomBytes } from "node:crypto";
import { DhExchange, type NvmeDhGroup } from "./dh-groups.ts";
import {
  challengeBytes,
  challengeMessage,
  type Failure,
  failure,
  failureMessage,
  isSuccess2,
  kind,
  kindOf,
  parseNegotiate,
  parseReply,
  success1Message,
} from "./messages.ts";
import {
  type Challenge,
  controllerResponse,
  type Ends,
  hostResponse,
  isSame,
  nextSequence,
} from "./responses.ts";
import { digestBytes, type NvmeHash, type Secret } from "./secret.ts";

/** What a host must prove, and how. */
export interface HostProof {
  readonly secret: Secret;
  /** The controller proves itself with this secret to a host that asks. */
  readonly controllerSecret: Secret | undefined;
  /** The accepted values, the preferred first. The first one that the host offers is used. */
  readonly hashes: readonly NvmeHash[];
  readonly dhGroups: readonly NvmeDhGroup[];
}

/** A message of the controller. */
export interface NextMessage {
  readonly message: Buffer;
  /** The message reports a failed authentication. The queue ends when the host has received it. */
  readonly isLast: boolean;
}

/** What the controller has chosen for one run of the protocol. */
interface Chosen {
  readonly id: number;
  readonly hash: NvmeHash;
  readonly dhGroup: NvmeDhGroup;
}

/** What the controller has asked the host. */
interface Asked extends Chosen {
  readonly challenge: Challenge;
  readonly exchange: DhExchange | undefined;
}

/**
 * The state of one run of the protocol. The host sends a message with one command and gets the next message with
 * another. In `send` states the controller waits for a message; in the others it has a message for the host.
 */
type State =
  | { readonly at: "send negotiate" }
  | ({ readonly at: "get challenge" } & Chosen)
  | { readonly at: "send reply"; readonly asked: Asked }
  | {
      readonly at: "get success1";
      readonly id: number;
      readonly hash: NvmeHash;
      readonly response: Buffer | undefined;
    }
  | { readonly at: "send success2"; readonly id: number }
  | { readonly at: "get failure1"; readonly id: number; readonly why: Failure }
  | { readonly at: "end" };

/** DH-HMAC-CHAP of one queue, the controller's side. */
export class ControllerAuthentication {
  /** Resolves when the host has proved its secret for the first time. It may do so again at any time. */
  readonly done: Promise<void>;
  readonly #ends: Ends;
  readonly #proof: HostProof;
  #state: State = { at: "send negotiate" };
  #isDone = false;
  #markDone = () => {};
  /** Messages take turns. */
  #turn: Promise<unknown> = Promise.resolve();
  readonly #ended = new AbortController();

  constructor(ends: Ends, proof: HostProof) {
    this.#ends = ends;
    this.#proof = proof;
    this.done = new Promise((resolve) => (this.#markDone = resolve));
  }

  /** The host has proved its secret, and no later run has failed. Before, the queue takes no other commands. */
  get isDone(): boolean {
    return this.#isDone;
  }

  /** The queue has ended: what it waits for is not computed. */
  end(): void {
    this.#ended.abort();
  }

  /** Takes the host's message. The next message reports a fault in it. False: the host has given up. */
  take(message: Buffer): Promise<boolean> {
    return this.#inTurn(() => this.#take(message));
  }

  /** The message that the host waits for. Undefined if the host has no room for it; the state does not change then. */
  next(maxBytes: number): Promise<NextMessage | undefined> {
    return this.#inTurn(() => this.#next(maxBytes));
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#turn.then(work);
    this.#turn = done.catch(() => {});
    return done;
  }

  async #take(message: Buffer): Promise<boolean> {
    const named = kindOf(message);
    const state = this.#state;
    if (named?.kind === kind.failure2) {
      this.#isDone = false;
      this.#state = { at: "end" };
      return false;
    }
    if (named === undefined) this.#fail(0, failure.payload);
    else if (named.kind === kind.negotiate && state.at === "send negotiate") this.#choose(named.id, message);
    else if (named.kind === kind.reply && state.at === "send reply")
      await this.#check(named.id, message, state.asked);
    else if (named.kind === kind.success2 && state.at === "send success2") {
      if (named.id === state.id && isSuccess2(message)) this.#succeed();
      else this.#fail(named.id, failure.payload);
    } else this.#fail(named.id, failure.message);
    return true;
  }

  async #next(maxBytes: number): Promise<NextMessage | undefined> {
    const state = this.#state;
    const given = (message: Buffer, then: () => void, isLast = false): NextMessage | undefined => {
      if (message.length > maxBytes) return undefined;
      then();
      return { message, isLast };
    };
    if (state.at === "get challenge") {
      // This check comes before the exchange of keys, which costs most.
      if (challengeBytes(state) > maxBytes) return undefined;
      const asked = await this.#ask(state);
      const message = challengeMessage(state.id, { ...asked, dhValue: asked.exchange?.value ?? noValue });
      return given(message, () => (this.#state = { at: "send reply", asked }));
    }
    if (state.at === "get success1") {
      const { id, hash, response } = state;
      return given(success1Message(id, hash, response), () => {
        if (response === undefined) this.#succeed();
        else this.#state = { at: "send success2", id };
      });
    }
    const { id, why } = state.at === "get failure1" ? state : { id: 0, why: failure.message };
    const giveUp = () => {
      this.#isDone = false;
      this.#state = { at: "end" };
    };
    return given(failureMessage(kind.failure1, id, why), giveUp, true);
  }

  #choose(id: number, message: Buffer): void {
    const offer = parseNegotiate(message);
    if (typeof offer === "number") return this.#fail(id, offer);
    const hash = this.#proof.hashes.find((one) => offer.hashes.includes(one));
    const dhGroup = this.#proof.dhGroups.find((one) => offer.dhGroups.includes(one));
    if (hash === undefined) return this.#fail(id, failure.hashUnusable);
    if (dhGroup === undefined) return this.#fail(id, failure.groupUnusable);
    this.#state = { at: "get challenge", id, hash, dhGroup };
  }

  async #check(
    id: number,
    message: Buffer,
    { hash, dhGroup, exchange, challenge, id: askedId }: Asked,
  ): Promise<void> {
    const reply = parseReply(message, { hash, dhGroup });
    if (id !== askedId) return this.#fail(id, failure.payload);
    if (typeof reply === "number") return this.#fail(id, reply);
    const shared = await exchange?.secretWith(reply.dhValue, this.#ended.signal);
    if (exchange !== undefined && shared === undefined) return this.#fail(id, failure.payload);
    const transaction = { id, hash, shared, ...this.#ends };
    const { secret, controllerSecret } = this.#proof;
    if (!isSame(hostResponse(transaction, secret, challenge), reply.response))
      return this.#fail(id, failure.failed);
    if (reply.challenge !== undefined && controllerSecret === undefined)
      return this.#fail(id, failure.failed);
    const response =
      reply.challenge &&
      controllerSecret &&
      controllerResponse(transaction, controllerSecret, reply.challenge);
    this.#state = { at: "get success1", id, hash, response };
  }

  async #ask({ id, hash, dhGroup }: Chosen): Promise<Asked> {
    return {
      ...{ id, hash, dhGroup },
      challenge: { bytes: randomBytes(digestBytes[hash]), sequence: nextSequence() },
      exchange:
        dhGroup === "null"
          ? undefined
          : await DhExchange.begin(dhGroup, this.#ends.hostNqn, this.#ended.signal),
    };
  }

  #succeed(): void {
    this.#state = { at: "send negotiate" };
    this.#isDone = true;
    this.#markDone();
  }

  #fail(id: number, why: Failure): void {
    this.#isDone = false;
    this.#state = { at: "get failure1", id, why };
  }
}

const noValue = Buffer.alloc(0);
