import { type RpcCode, service } from "cinnabar/standard";
import { messageSchema } from "../collective/message-schema.ts";
import { collective } from "../collective/method.ts";

/** What members do together at a meeting. */
export type MeetingKind = "barrier" | "gather" | "allGather" | "allReduce" | "scatter";

/** A rank and what it brought. */
export type Contribution = readonly [rank: number, value: unknown];

/** The question whether a member has come. */
export interface Collect {
  readonly name: string;
  readonly kind: MeetingKind;
  /** Chosen by the leader for this time of asking. */
  readonly meeting: string;
}

/** What a meeting gives to one member. */
export interface Release {
  readonly name: string;
  /** That of the collecting call which the member answered last. */
  readonly meeting: string;
  readonly error: { readonly code: RpcCode; readonly message: string } | undefined;
  readonly result: unknown;
}

/** The most characters of a meeting's name. */
export const longestName = 128;

const isText = (value: unknown): value is string => typeof value === "string";
const isName = (value: unknown): boolean => isText(value) && value.length >= 1 && value.length <= longestName;

/** Those who have come. */
export interface Brought {
  readonly brought: readonly Contribution[];
}

const isContribution = (value: unknown): boolean => Array.isArray(value) && Number.isInteger(value[0]);

/** What the members of a group send each other for barriers and their kin. */
export const MeetingService = service("cinnabar.meetings.v1", {
  /** Answers when the member has come to the meeting, with what it brought. */
  collect: collective({
    input: messageSchema<Collect>("a meeting", {
      name: isName,
      kind: isText,
      meeting: isText,
    }),
    output: messageSchema<Brought>("contributions", {
      brought: (value) => Array.isArray(value) && value.every(isContribution),
    }),
    reduce: (some, others) => ({ brought: [...some.brought, ...others.brought] }),
  }),
  /** Lets the member go on. */
  release: collective({
    input: messageSchema<Release>("the end of a meeting", {
      name: isName,
      meeting: isText,
      error: (value) => value === undefined || (typeof value === "object" && value !== null),
      result: () => true,
    }),
  }),
});
