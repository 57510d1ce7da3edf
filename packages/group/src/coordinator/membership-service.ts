import { RpcError, type Schema, serverStream, service, unary } from "cinnabar/standard";
import type { Candidate } from "../authority/authority.ts";
import { type Member, type MemberLanes, makeView, type View } from "../view/view.ts";

/** A view as members send it to each other. */
export interface Published {
  readonly view: View;
  /** The rank of the next member without a wish for one. No rank is given to two places. */
  readonly nextRank: number;
}

export interface JoinRequest {
  readonly group: string;
  readonly candidate: Candidate;
}

/** Another member decides, which can be reached there; or the view with the new member. */
export type JoinAnswer =
  | { readonly kind: "elsewhere"; readonly urls: readonly string[] }
  | { readonly kind: "joined"; readonly published: Published; readonly rank: number };

export interface LeaveRequest {
  readonly published: Published;
  readonly rank: number;
  readonly incarnation: number;
}

export interface FollowRequest {
  readonly group: string;
  /** The known version; 0 without one. */
  readonly after: number;
  /** The member that asks; undefined for an observer. */
  readonly rank: number | undefined;
}

/** What members of a group with a coordinator ask each other. */
export const Membership = service("cinnabar.membership.v1", {
  view: unary({ input: checked(groupName), output: checked(publishedOf), idempotent: true }),
  follow: serverStream({ input: checked(followOf), output: checked(publishedOf), idleTimeoutMs: false }),
  // A candidate that asks again gets the same place: it is known by its engine.
  join: unary({ input: checked(joinOf), output: checked(answerOf), idempotent: true }),
  leave: unary({ input: checked(leaveOf), idempotent: true }),
});

/** A schema from a function that throws for a wrong value. */
function checked<T>(parse: (value: unknown) => T): Schema<T> {
  return {
    "~standard": {
      version: 1,
      vendor: "cinnabar-group",
      validate: (value) => {
        try {
          return { value: parse(value) };
        } catch (error) {
          return { issues: [{ message: error instanceof Error ? error.message : String(error) }] };
        }
      },
    },
  };
}

type Fields = Readonly<Record<string, unknown>>;

function fieldsOf(value: unknown): Fields {
  if (typeof value !== "object" || value === null) throw new TypeError("expected an object");
  return value as Fields;
}

function text(value: unknown, name: string): string {
  if (typeof value === "string" && value.length <= maxTextLength) return value;
  throw new TypeError(`${name} is no text of at most ${maxTextLength} characters`);
}

const maxTextLength = 4096;

const optionalText = (value: unknown, name: string) => (value == null ? undefined : text(value, name));

function whole(value: unknown, name: string): number {
  if (Number.isSafeInteger(value) && (value as number) >= 0) return value as number;
  throw new TypeError(`${name} is no whole number from 0`);
}

function list(value: unknown, name: string): readonly unknown[] {
  if (Array.isArray(value)) return value;
  throw new TypeError(`${name} is no list`);
}

function urlsOf(value: unknown): string[] {
  return list(value, "urls").map((url) => text(url, "a URL"));
}

function groupName(value: unknown): string {
  return text(value, "group");
}

function engineOf(value: unknown): string {
  const engine = text(value, "engine");
  if (/^[0-9a-f]{16}$/.test(engine)) return engine;
  throw new TypeError("engine is no incarnation of 16 hexadecimal digits");
}

function metadataOf(value: unknown): Record<string, string> {
  return Object.fromEntries(
    Object.entries(fieldsOf(value)).map(([name, each]) => [name, text(each, `metadata.${name}`)]),
  );
}

function placeOf(value: Fields) {
  return {
    engine: engineOf(value.engine),
    urls: urlsOf(value.urls),
    host: optionalText(value.host, "host"),
    detector: optionalText(value.detector, "detector"),
    lanes: value.lanes == null ? undefined : lanesOf(value.lanes),
    metadata: metadataOf(value.metadata),
  };
}

function lanesOf(value: unknown): MemberLanes {
  const { engine, urls } = fieldsOf(value);
  return { engine: engine == null ? undefined : engineOf(engine), urls: urlsOf(urls) };
}

function memberOf(value: unknown): Member {
  const fields = fieldsOf(value);
  const incarnation = whole(fields.incarnation, "incarnation");
  return { rank: whole(fields.rank, "rank"), incarnation, ...placeOf(fields) };
}

function publishedOf(value: unknown): Published {
  const { view, nextRank } = fieldsOf(value);
  const { group, version, members } = fieldsOf(view);
  return {
    view: makeView(groupName(group), whole(version, "version"), list(members, "members").map(memberOf)),
    nextRank: whole(nextRank, "nextRank"),
  };
}

function followOf(value: unknown): FollowRequest {
  const { group, after, rank } = fieldsOf(value);
  return {
    group: groupName(group),
    after: whole(after, "after"),
    rank: rank == null ? undefined : whole(rank, "rank"),
  };
}

function joinOf(value: unknown): JoinRequest {
  const { group, candidate } = fieldsOf(value);
  const fields = fieldsOf(candidate);
  const rank = fields.rank == null ? {} : { rank: whole(fields.rank, "rank") };
  return { group: groupName(group), candidate: { ...rank, creates: false, ...placeOf(fields) } };
}

function answerOf(value: unknown): JoinAnswer {
  const { kind, urls, published, rank } = fieldsOf(value);
  if (kind === "elsewhere") return { kind, urls: urlsOf(urls) };
  if (kind !== "joined") throw new TypeError("an answer of no known kind");
  return { kind, published: publishedOf(published), rank: whole(rank, "rank") };
}

function leaveOf(value: unknown): LeaveRequest {
  const { published, rank, incarnation } = fieldsOf(value);
  return {
    published: publishedOf(published),
    rank: whole(rank, "rank"),
    incarnation: whole(incarnation, "incarnation"),
  };
}

/** Whether another process does not let this one in, or is not who it should be: another try ends in the same way. */
export function isRefusal(error: unknown): error is RpcError {
  return (
    error instanceof RpcError && (error.code === "permission_denied" || error.code === "unauthenticated")
  );
}

/** The error of a group with processes that refuse this one. `who` is the request, or its destination. */
export function refusedBy(group: string, who: string, cause: RpcError): RpcError {
  const { code, origin, plainMessage } = cause;
  return new RpcError({
    code,
    message: `group "${group}": the request to ${who} failed: ${plainMessage}`,
    origin,
    cause,
  });
}
