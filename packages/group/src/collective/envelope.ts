import {
  bulk as bulkSchema,
  type Region,
  type RemoteRegion,
  type RpcCode,
  type Schema,
} from "cinnabar/standard";
import type { NamedMember } from "../group/member-link.ts";
import { type FieldChecks, messageSchema } from "./message-schema.ts";
import { leastRatio, mostRatio, type TreeShape } from "./tree.ts";

/** What a collective does about members that fail. */
export type OnFailure = "fail" | "partial" | "failout";

/** A member as an envelope carries it, for receivers that may have another view. */
export type CarriedMember = NamedMember;

/** A collective on its way to one node and the subtree below it. What most calls do not have is absent. */
export interface Envelope {
  /** The name of the group. */
  readonly group: string;
  /** Names who began the call, for as long as it lives: 32 hexadecimal digits. */
  readonly root: string;
  /** The rank of who began the call; undefined for an observer. */
  readonly rootRank: number | undefined;
  /** The number of the call at its root. With `root` it is the call's id. */
  readonly call: number;
  /** The least number of a call that its root has open. Receivers forget all below. */
  readonly oldest: number;
  /** The version of the root's view. */
  readonly version: number;
  /** Whether a receiver with another view refuses the call. */
  readonly isStrict: boolean;
  /** The receiver's incarnation. Another one refuses the call. */
  readonly incarnation: number;
  /** The receiver's run: its own rank first, then those of the subtree below it. */
  readonly ranks: readonly number[];
  /** The members of the run, where the receiver's view may be another one: with `isStrict` false. */
  readonly members?: readonly CarriedMember[] | undefined;
  readonly tree: TreeShape;
  /** How far the receiver is from the root: 1 for a child of it. */
  readonly level: number;
  readonly onFailure: OnFailure;
  /** How much earlier than its parent a node gives up, in milliseconds. */
  readonly marginMs: number;
  /** The method's own input, as the caller passed it. */
  readonly input: unknown;
  /** The inputs of the run, in its order, where each member has its own: then `input` is undefined. */
  readonly inputs?: readonly unknown[] | undefined;
  /** The sender's copy of the caller's region; absent for a collective without one. */
  readonly region?: Region<"read"> | RemoteRegion<"read"> | undefined;
  /** How each copy of the region is compared with the one that it was made of. */
  readonly checksum?: "crc32c" | undefined;
}

/** Why a rank has no part in the value. */
export interface CarriedFailure {
  readonly rank: number;
  readonly code: RpcCode;
  readonly message: string;
  readonly executed: "no" | "maybe" | "yes";
  readonly retryable: boolean;
  /** The name of the error, where the contract declares it; else absent. */
  readonly reason?: string;
  /** The data of a declared error. */
  readonly data?: unknown;
}

/** What a node says of its run, or why it did not take the call. */
export interface Reply {
  /** Set where the node took no part. Nothing was executed and nothing was sent further. */
  readonly refusal?: Omit<CarriedFailure, "rank" | "executed"> | undefined;
  /** The outputs of `ok`, reduced; undefined for a method without output or an empty `ok`. */
  readonly value: unknown;
  readonly ok: readonly number[];
  readonly failed: readonly CarriedFailure[];
  /** Ranks that were reached by another way after their parent failed. */
  readonly repaired: readonly number[];
  /** How long the node had the call, in milliseconds. */
  readonly elapsedMs: number;
}

/** The most members of one run. */
export const mostRanks = 65_536;
const mostUrls = 16;
const longestText = 4096;

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;
const isText = (value: unknown): value is string => typeof value === "string" && value.length <= longestText;
const isRanks = (value: unknown): value is number[] =>
  Array.isArray(value) && value.length <= mostRanks && value.every(isCount);

function isTree(value: unknown): value is TreeShape {
  const { kind, ratio } = (value ?? {}) as { kind?: unknown; ratio?: unknown };
  if (kind === "flat") return true;
  return (
    (kind === "kary" || kind === "knomial") && isCount(ratio) && ratio >= leastRatio && ratio <= mostRatio
  );
}

function isMember(value: unknown): value is CarriedMember {
  const { rank, incarnation, engine, urls, host } = (value ?? {}) as Partial<CarriedMember>;
  return (
    isCount(rank) &&
    isCount(incarnation) &&
    (engine === undefined || isText(engine)) &&
    (host === undefined || isText(host)) &&
    Array.isArray(urls) &&
    urls.length >= 1 &&
    urls.length <= mostUrls &&
    urls.every(isText)
  );
}

const anyRegion = bulkSchema("read");
const isRegion = (value: unknown): boolean =>
  (anyRegion["~standard"].validate(value) as { readonly issues?: unknown }).issues === undefined;

const checksOfEnvelope: FieldChecks<Envelope> = {
  group: isText,
  root: isText,
  rootRank: (value) => value === undefined || isCount(value),
  call: isCount,
  oldest: isCount,
  version: isCount,
  isStrict: (value) => typeof value === "boolean",
  incarnation: isCount,
  ranks: (value) =>
    isRanks(value) && value.length >= 1 && (value.length === 1 || new Set(value).size === value.length),
  members: (value, { ranks }) =>
    value === undefined ||
    (Array.isArray(value) &&
      value.length === ranks.length &&
      value.every((member, index) => isMember(member) && member.rank === ranks[index])),
  tree: isTree,
  level: isCount,
  onFailure: (value) => value === "fail" || value === "partial" || value === "failout",
  marginMs: (value) => typeof value === "number" && value >= 0,
  input: () => true,
  inputs: (value, { ranks }) =>
    value === undefined || (Array.isArray(value) && value.length === ranks.length),
  region: (value) => value === undefined || isRegion(value),
  checksum: (value) => value === undefined || value === "crc32c",
};

const codes: Readonly<Record<RpcCode, true>> = {
  ...{ cancelled: true, unknown: true, invalid_argument: true, deadline_exceeded: true, not_found: true },
  ...{ already_exists: true, permission_denied: true, resource_exhausted: true, failed_precondition: true },
  ...{ aborted: true, out_of_range: true, unimplemented: true, internal: true, unavailable: true },
  ...{ data_loss: true, unauthenticated: true },
};
export const isRpcCode = (value: unknown): value is RpcCode =>
  typeof value === "string" && Object.hasOwn(codes, value);
const isExecuted = (value: unknown) => value === "no" || value === "maybe" || value === "yes";

function isFailure(value: unknown): boolean {
  const { rank, executed } = (value ?? {}) as Partial<CarriedFailure>;
  return isCount(rank) && isExecuted(executed) && isRefusal(value);
}

function isRefusal(value: unknown): boolean {
  const { code, message, retryable, reason } = (value ?? {}) as Partial<CarriedFailure>;
  return (
    isRpcCode(code) &&
    isText(message) &&
    typeof retryable === "boolean" &&
    (reason === undefined || isText(reason))
  );
}

const checksOfReply: FieldChecks<Reply> = {
  refusal: (value) => value === undefined || isRefusal(value),
  value: () => true,
  ok: isRanks,
  failed: (value) => Array.isArray(value) && value.length <= mostRanks && value.every(isFailure),
  repaired: isRanks,
  elapsedMs: (value) => typeof value === "number" && value >= 0,
};

/** An envelope, complete and within bounds. */
export const envelopeSchema: Schema<Envelope> = messageSchema<Envelope>(
  "a collective's envelope",
  checksOfEnvelope,
);

/** A reply, complete and within bounds. Whether it fits the run that it answers for is for the parent to see. */
export const replySchema: Schema<Reply> = messageSchema<Reply>("a collective's reply", checksOfReply);
