import { service, unary } from "cinnabar/standard";
import { messageSchema } from "../collective/message-schema.ts";
import { collective } from "../collective/method.ts";

/** What one member has of a variable: its newest version, and the value unless that version invalidated it. */
export interface Copy {
  /** 0: nothing is known. */
  readonly version: number;
  readonly hasValue: boolean;
  readonly value: unknown;
}

export const nothing: Copy = Object.freeze({ version: 0, hasValue: false, value: undefined });

/** A new version on its way from the owner to all members. */
export interface Put extends Copy {
  readonly name: string;
  /** The version of the view in which the sending owner took over. */
  readonly term: number;
}

/** A new owner asks what is known, and that members refuse earlier owners. */
export interface TakeOver {
  readonly name: string;
  readonly term: number;
}

/** A question to the owner. */
export interface Question {
  readonly group: string;
  readonly name: string;
}

/** A change that the owner is asked to make. */
export interface Change extends Question {
  readonly hasValue: boolean;
  readonly value: unknown;
  /** The version that must be the newest one; undefined for any. */
  readonly ifVersion: number | undefined;
  /** Whether the owner answers when all members have it. */
  readonly sync: boolean;
}

/** What the owner says. */
export interface OwnerAnswer extends Copy {
  /** `elsewhere`: this process does not own it now, and nothing was done. `conflict`: `version` is the newest one. */
  readonly state: "done" | "conflict" | "elsewhere";
}

/** The most characters of a variable's name. */
export const longestName = 128;

const isText = (value: unknown): boolean => typeof value === "string" && value.length <= 256;
const isName = (value: unknown): boolean =>
  typeof value === "string" && value.length >= 1 && value.length <= longestName;
const isVersion = (value: unknown): boolean => Number.isSafeInteger(value) && (value as number) >= 0;
const isFlag = (value: unknown): boolean => typeof value === "boolean";
const copyChecks = { version: isVersion, hasValue: isFlag, value: () => true };

const answer = messageSchema<OwnerAnswer>("an owner's answer", {
  ...copyChecks,
  state: (value) => ["done", "conflict", "elsewhere"].includes(value as string),
});

/** What the members of a group send each other for variables. */
export const VariableService = service("cinnabar.variables.v1", {
  /** The newest version, of the owner. */
  fetch: unary({
    input: messageSchema<Question>("a question", { group: isText, name: isName }),
    output: answer,
    idempotent: true,
  }),
  /** Another version, by the owner. */
  change: unary({
    input: messageSchema<Change>("a change", {
      ...{ group: isText, name: isName, hasValue: isFlag, value: () => true, sync: isFlag },
      ifVersion: (value) => value === undefined || isVersion(value),
    }),
    output: answer,
  }),
  /** Gives a version to all members. */
  put: collective({
    input: messageSchema<Put>("a version", { ...copyChecks, name: isName, term: isVersion }),
  }),
  /** The newest version that any member knows. */
  takeOver: collective({
    input: messageSchema<TakeOver>("a takeover", { name: isName, term: isVersion }),
    output: messageSchema<Copy>("a copy", copyChecks),
    reduce: (one, other) => (one.version >= other.version ? one : other),
  }),
});
