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
export interface Ping extends Header {
  readonly kind: "ping";
  readonly sequence: number;
}

/** Answers a `ping`, or reports to the member that asked for an indirect probe that its target has answered. */
export interface Ack extends Header {
  readonly kind: "ack";
  readonly sequence: number;
}

/**
 * Reports to the member that asked for an indirect probe that its target has not answered so far. It shows that the
 * asker's own network works.
 */
export interface Nack extends Header {
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
export interface Gossip extends Header {
  readonly kind: "gossip";
}

export type Message = Ping | Ack | Nack | IndirectPing | Gossip;

export type MessageKind = Message["kind"];

/** A message before the detector fills in sender, receiver and updates. */
export type Purpose =
  | { readonly kind: "ping" | "ack" | "nack"; readonly sequence: number }
  | { readonly kind: "indirect-ping"; readonly sequence: number; readonly target: MemberId }
  | { readonly kind: "gossip" };
