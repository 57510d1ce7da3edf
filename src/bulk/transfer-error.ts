import { fabricError, fabricErrorCode } from "../errors/fabric-error.ts";
import { RpcError } from "../errors/rpc-error.ts";
import type { CheckedPart } from "./transfer-part.ts";
import type { RefusedTransfer, TransferRoute } from "./transfer-route.ts";

/** What an error says of the transfer that failed. */
interface Failed {
  readonly op: "get" | "put";
  readonly route: TransferRoute;
  readonly parts: readonly CheckedPart[];
  readonly total: number;
  readonly moved: number;
}

/** What a provider means that says why it refuses. */
const reasons: Readonly<Record<number, string>> = {
  266: "its owner knows no such key: it was never lent, or is not any more", // FI_ENOKEY
  13: "its owner does not allow that", // EACCES
  34: "it lies outside what its owner has lent", // ERANGE
};

/** The user gave it up: `reason` is a signal's, or the milliseconds that have passed. */
export function givenUp(failed: Failed, reason: unknown): RpcError {
  const outOfTime = typeof reason === "number";
  const timedOut = outOfTime || (reason instanceof DOMException && reason.name === "TimeoutError");
  const why = outOfTime ? `${reason} ms have passed` : timedOut ? "its signal timed out" : "it was cancelled";
  return new RpcError({
    code: timedOut ? "deadline_exceeded" : "cancelled",
    message: `${describe(failed)}: ${why} after ${failed.moved} bytes`,
    origin: "local",
    transferredBytes: failed.moved,
    ...(outOfTime ? {} : { cause: reason }),
  });
}

/** The handler has returned without waiting for it. */
export function stoppedEarly(failed: Failed): RpcError {
  return new RpcError({
    code: "failed_precondition",
    message: `${describe(failed)} stopped after ${failed.moved} bytes: the call has ended, its regions are revoked`,
    origin: "local",
    transferredBytes: failed.moved,
  });
}

/** Why the provider did not do it. */
export interface Refusal {
  readonly error: RpcError;
  /** Where that does not say why and the owner can be asked: what it says, or `error`. Does not reject. */
  readonly explained?: Promise<RpcError>;
}

/** The provider refused it with `status`. */
export function refused(failed: Failed, status: number): Refusal {
  const { port, explain } = failed.route;
  const reason = reasons[status];
  const error = fabricError({
    provider: port.provider,
    op: failed.op === "get" ? "fi_read" : "fi_write",
    code: status,
    message: `${describe(failed)} ended after ${failed.moved} bytes${reason === undefined ? "" : `: ${reason}`}`,
    transferredBytes: failed.moved,
  });
  const silent = port.refusesSilently && fabricErrorCode(status) === "unavailable";
  if (!silent || explain === undefined) return { error };
  const explained = ask(failed, explain.bind(failed.route)).then(
    (answer) => (answer === undefined ? error : withDetail(answer, error)),
    () => error,
  );
  return { error, explained };
}

async function ask(
  failed: Failed,
  explain: NonNullable<TransferRoute["explain"]>,
): Promise<RpcError | undefined> {
  for (const question of questions(failed)) {
    const answer = await explain(question);
    if (answer !== undefined) return answer;
  }
  return undefined;
}

/** One for each loan, on everything of it that was to be touched. */
function questions({ op, parts }: Failed): RefusedTransfer[] {
  const needed = op === "get" ? "read" : "write";
  const byLoan = new Map<bigint, RefusedTransfer>();
  for (const { remote, offset, bytes } of parts) {
    if (bytes === 0) continue;
    const key = remote.loanKey;
    const from = remote.loanOffset + offset;
    const known = byLoan.get(key);
    const first = Math.min(from, known?.offset ?? from);
    const end = Math.max(from + bytes, known === undefined ? 0 : known.offset + known.bytes);
    byLoan.set(key, { key, needed, offset: first, bytes: end - first });
  }
  return [...byLoan.values()];
}

/** The owner's reason, with what the fabric said. */
function withDetail(explained: RpcError, { message, fabric, transferredBytes }: RpcError): RpcError {
  return new RpcError({
    code: explained.code,
    message: `${bare(message)}: ${bare(explained.message)}`,
    origin: explained.origin,
    fabric,
    transferredBytes,
    retryable: explained.retryable,
  });
}

/** A message without its code. */
function bare(message: string): string {
  return message.replace(/^\[\w+\] /, "");
}

function describe({ op, parts, total }: Failed): string {
  const [part] = parts;
  if (part !== undefined && parts.length === 1) return `${op} of ${total} bytes at offset ${part.offset}`;
  return `${op} of ${total} bytes in ${parts.length} parts`;
}
