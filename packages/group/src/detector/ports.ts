import type { DetectorEvent } from "./events.ts";
import type { MemberId, Message, Update } from "./message.ts";

/** What a detector needs of the world. */
export interface DetectorPorts {
  /** Sends a message, or loses it. */
  send(address: string, message: Message): void;
  /** From 0 to below 1. */
  random(): number;
  onEvent(event: DetectorEvent): void;
}

/** What a message has beside its purpose and the news. */
export interface Addition {
  /** A member whose state the receiver gets in any case. */
  readonly about?: MemberId;
  readonly update?: Update | undefined;
  /** Default: the first of the receiver. */
  readonly address?: string;
}
