import { type RpcCode, service } from "cinnabar/standard";
import { messageSchema } from "../collective/message-schema.ts";
import { collective } from "../collective/method.ts";

/** What members do together. */
export type ExchangeKind =
  | "barrier"
  | "gather"
  | "allGather"
  | "reduce"
  | "allReduce"
  | "broadcast"
  | "scatter";

/** A rank and what it brought. */
export type Contribution = readonly [rank: number, value: unknown];

/** The question whether a member has come. */
export interface Collect {
  readonly name: string;
  readonly kind: ExchangeKind;
  /** The id of this round; the leader chooses it. */
  readonly round: string;
}

/** How a round ends for one member. */
export interface Release {
  readonly name: string;
  /** The round that the member was counted for last. */
  readonly round: string;
  readonly error: { readonly code: RpcCode; readonly message: string } | undefined;
  readonly result: unknown;
}

/** The most characters of an exchange's name. */
export const longestName = 128;

const isText = (value: unknown): value is string => typeof value === "string";
const isName = (value: unknown): boolean => isText(value) && value.length >= 1 && value.length <= longestName;

/** The members that have come. */
export interface Brought {
  readonly brought: readonly Contribution[];
}

const isContribution = (value: unknown): boolean => Array.isArray(value) && Number.isInteger(value[0]);

/** What the members of a group send each other for barriers and exchanges. */
export const ExchangeService = service("cinnabar.exchanges.v1", {
  /** Answers when the member has come, with what it brought. */
  collect: collective({
    input: messageSchema<Collect>("an exchange", {
      name: isName,
      kind: isText,
      round: isText,
    }),
    output: messageSchema<Brought>("contributions", {
      brought: (value) => Array.isArray(value) && value.every(isContribution),
    }),
    reduce: (some, others) => ({ brought: [...some.brought, ...others.brought] }),
  }),
  /** Lets the member go on. */
  release: collective({
    input: messageSchema<Release>("the end of an exchange", {
      name: isName,
      round: isText,
      error: (value) => value === undefined || (typeof value === "object" && value !== null),
      result: () => true,
    }),
  }),
});
