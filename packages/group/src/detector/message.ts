/** A member's number in its group, its rank. It stays the same when the process restarts. */
export type MemberId = number;

/**
 * The believed state of a member. `stalled`: its detector answers and its main thread does not. `left`: it said
 * goodbye.
 */
export type Status = "alive" | "stalled" | "suspect" | "dead" | "left";

/** What a member says of itself in every message. */
export type OwnStatus = Extract<Status, "alive" | "stalled" | "left">;

/** An opinion about one member, as messages carry it. */
export interface Update {
  readonly member: MemberId;
  readonly status: Status;
  readonly incarnation: number;
  /** The member that raised a suspicion. */
  readonly accuser?: MemberId;
}

interface Header {
  readonly from: MemberId;
  readonly to: MemberId;
  /** The sender's own incarnation and status: what it says of itself is always current. */
  readonly incarnation: number;
  readonly status: OwnStatus;
  readonly updates: readonly Update[];
}

/** Asks the receiver for an `ack` with the same `sequence`. */
interface Ping extends Header {
  readonly kind: "ping";
  readonly sequence: number;
}

/** Answers a `ping`, or reports to the member that asked for an indirect probe that its target has answered. */
interface Ack extends Header {
  readonly kind: "ack";
  readonly sequence: number;
}

/**
 * Reports to the member that asked for an indirect probe that its target has not answered so far. It shows that the
 * asker's own network works.
 */
interface Nack extends Header {
  readonly kind: "nack";
  readonly sequence: number;
}

/** Asks the receiver to ping `target`. */
export interface IndirectPing extends Header {
  readonly kind: "indirect-ping";
  readonly sequence: number;
  readonly target: MemberId;
}

/** Carries updates and asks for nothing. */
interface Gossip extends Header {
  readonly kind: "gossip";
}

export type Message = Ping | Ack | Nack | IndirectPing | Gossip;

type MessageKind = Message["kind"];

/** A message before the detector fills in sender, receiver and updates. */
export type Purpose =
  | { readonly kind: "ping" | "ack" | "nack"; readonly sequence: number }
  | { readonly kind: "indirect-ping"; readonly sequence: number; readonly target: MemberId }
  | { readonly kind: "gossip" };

/** The first byte of every message: a version, so that later ones can differ. */
const version = 0xd1;

/** The most updates of a message: eight that are news, one of the receiver itself, one of a probe's target. */
export const maxUpdates = 16;

/** No message is longer: 16 updates of 25 bytes and a header of 47. */
export const maxMessageBytes = 512;

/** Incarnations above it are refused, so that adding one to what others say never leaves the safe integers. */
export const maxIncarnation = 2 ** 52;

const kinds = ["ping", "ack", "nack", "indirect-ping", "gossip"] as const satisfies readonly MessageKind[];
const statuses = ["alive", "stalled", "left", "suspect", "dead"] as const satisfies readonly Status[];
/** The first of `statuses` are those that members say of themselves. */
const ownStatuses = 3;

const scratch = new Uint8Array(maxMessageBytes);

/**
 * Layout: version (1 byte), group (4 bytes, little-endian), kind and own status (1 byte, status in the high half), then
 * varints: from, to, incarnation, sequence (not of gossip), target (of indirect-ping), the number of updates, and
 * each update: member, incarnation, status (1 byte), accuser (of suspect).
 *
 * @param group what tells groups apart that share a network: a hash of the name
 */
export function encode(group: number, message: Message): Uint8Array {
  const { kind, updates } = message;
  scratch[0] = version;
  scratch[1] = group;
  scratch[2] = group >>> 8;
  scratch[3] = group >>> 16;
  scratch[4] = group >>> 24;
  scratch[5] = kinds.indexOf(kind) | (statuses.indexOf(message.status) << 4);
  let at = putVarint(6, message.from);
  at = putVarint(at, message.to);
  at = putVarint(at, message.incarnation);
  if (kind !== "gossip") at = putVarint(at, message.sequence);
  if (kind === "indirect-ping") at = putVarint(at, message.target);
  at = putVarint(at, updates.length);
  for (const { member, status, incarnation, accuser } of updates) {
    at = putVarint(at, member);
    at = putVarint(at, incarnation);
    scratch[at++] = statuses.indexOf(status);
    if (status === "suspect") at = putVarint(at, accuser ?? member);
  }
  return scratch.slice(0, at);
}

function putVarint(at: number, value: number): number {
  let rest = value;
  let next = at;
  while (rest >= 0x80) {
    scratch[next++] = (rest % 0x80) | 0x80;
    rest = Math.floor(rest / 0x80);
  }
  scratch[next++] = rest;
  return next;
}

/** Why bytes are no message: not of this protocol or malformed, or of another group. */
type Refusal = "malformed" | "foreign";

/** Reads a message. Bytes are not trusted: whatever is not exactly what `encode` makes is refused. */
export function decode(group: number, bytes: Uint8Array): Message | Refusal {
  if (bytes.length < 10 || bytes.length > maxMessageBytes || bytes[0] !== version) return "malformed";
  const [, a = 0, b = 0, c = 0, d = 0, kindAndStatus = 0] = bytes;
  if ((a | (b << 8) | (c << 16) | (d << 24)) >>> 0 !== group >>> 0) return "foreign";
  const kind = kinds[kindAndStatus & 0x0f];
  const status = kindAndStatus >> 4 < ownStatuses ? statuses[kindAndStatus >> 4] : undefined;
  if (kind === undefined || status === undefined) return "malformed";
  const reader = new Reader(bytes, 6);
  const from = reader.id();
  const to = reader.id();
  const incarnation = reader.incarnation();
  const sequence = kind === "gossip" ? 0 : reader.id();
  const target = kind === "indirect-ping" ? reader.id() : 0;
  const updates = reader.updates();
  if (reader.isBroken || !reader.isAtEnd) return "malformed";
  const header = { from, to, incarnation, status: status as OwnStatus, updates };
  if (kind === "gossip") return { kind, ...header };
  if (kind === "indirect-ping") return { kind, ...header, sequence, target };
  return { kind, ...header, sequence };
}

class Reader {
  isBroken = false;
  readonly #bytes: Uint8Array;
  #at: number;

  constructor(bytes: Uint8Array, at: number) {
    this.#bytes = bytes;
    this.#at = at;
  }

  get isAtEnd(): boolean {
    return this.#at === this.#bytes.length;
  }

  /** A member or a sequence number: 32 bits. */
  id(): number {
    return this.#varint(0xffff_ffff);
  }

  incarnation(): number {
    return this.#varint(maxIncarnation);
  }

  updates(): Update[] {
    const updates: Update[] = [];
    const count = this.#varint(maxUpdates);
    for (let index = 0; index < count && !this.isBroken; index += 1) {
      const member = this.id();
      const incarnation = this.incarnation();
      const status = statuses[this.#bytes[this.#at++] ?? statuses.length];
      if (status === undefined) this.isBroken = true;
      else if (status === "suspect") updates.push({ member, status, incarnation, accuser: this.id() });
      else updates.push({ member, status, incarnation });
    }
    return updates;
  }

  #varint(max: number): number {
    let value = 0;
    let factor = 1;
    for (;;) {
      const byte = this.#bytes[this.#at++];
      // A last byte of 0 would be a second way to write the same number.
      if (byte === undefined || value > max || (byte === 0 && factor > 1)) break;
      value += (byte & 0x7f) * factor;
      if (byte < 0x80) {
        if (value <= max) return value;
        break;
      }
      factor *= 0x80;
    }
    this.isBroken = true;
    return 0;
  }
}
