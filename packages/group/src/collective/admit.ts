import { BulkCopy } from "../bulk/bulk-copy.ts";
import { byRank, memberOf } from "../view/view.ts";
import type { CarriedMember, Envelope } from "./envelope.ts";
import { failureOf } from "./failure.ts";
import type { ServedCollective } from "./handlers.ts";
import type { Members } from "./members.ts";
import type { Failure } from "./tally.ts";

/** What a refusal is unless it says otherwise. */
export const refused = { code: "failed_precondition", retryable: true } as const;

/** The members of an envelope's run as this process sees them, or why it takes no part in the call. */
export function runOf(
  members: Members,
  { version, isStrict, incarnation, ranks, members: carried }: Envelope,
): readonly CarriedMember[] | string {
  const { self, view, broken } = members;
  const [rank] = ranks;
  if (broken !== undefined) return broken.message;
  if (self === undefined || rank !== self.rank) return `rank ${rank} is another process`;
  if (incarnation !== self.incarnation)
    return `rank ${rank} has the incarnation ${self.incarnation}, the call is for ${incarnation}`;
  if (memberOf(view, self.rank)?.incarnation !== self.incarnation)
    return `rank ${rank} is not in view ${view.version} any more`;
  if (!isStrict) return carried ?? "the call carries no members";
  if (version !== view.version)
    return `rank ${rank} has view ${view.version}, the call is of view ${version}`;
  const known = byRank(view);
  const run = ranks.map((each) => known.get(each));
  return run.every((member) => member !== undefined) ? run : `view ${version} lacks ranks of the call`;
}

/** Memory for the region of a collective that has one, or the reason why there is no memory. */
export function copyFor(
  { engine }: Members,
  { method }: ServedCollective,
  { region, checksum }: Envelope,
): BulkCopy | Failure | undefined {
  const { bulk } = method.collective;
  if (bulk === undefined) return undefined;
  if (region === undefined || region.byteLength < 1 || region.byteLength > bulk.maxBytes)
    return {
      ...refused,
      message: `the call's region has not 1 to ${bulk.maxBytes} bytes`,
      retryable: false,
    };
  try {
    return BulkCopy.into(engine.pool.take(region.byteLength, { access: "read" }), checksum);
  } catch (error) {
    return failureOf(error);
  }
}
