import { fabricError, fabricErrorCode } from "../base/errors/fabric-error.ts";
import { RpcError } from "../base/errors/rpc-error.ts";
import { pinsNoFiles } from "../fabric/libfabric/file-memory.ts";
import { lostBytes } from "../memory/exposable.ts";
import type { Access } from "../memory/region-kind.ts";
import { asCount, builtinMethod, isUint64 } from "./control/control-method.ts";
import type { PeerLink, RefusedTransfer } from "./control/peer-link.ts";
import type { CheckedPart } from "./transfer-part.ts";

/** The transfer that failed, for its error. */
interface Failed {
  readonly op: "get" | "put";
  readonly peer: PeerLink;
  readonly parts: readonly CheckedPart[];
  readonly total: number;
  readonly moved: number;
}

/** The meaning of errors of providers that report a reason. */
const reasons: Readonly<Record<number, string>> = {
  266: "its owner does not know the key: the region was never granted, or its grant has ended", // FI_ENOKEY
  13: "its owner does not allow this access", // EACCES
  34: "it lies outside what its owner has granted", // ERANGE
};

/** EFAULT: memory is missing. The engine checks addresses, so the memory is that of a mapped file. */
const noMemory = 14;
const lostFile = {
  code: "data_loss",
  why: "the memory of one side shows a file that has lost bytes",
} as const;
const noPin = { code: "unimplemented", why: pinsNoFiles } as const;

/** The user stopped the transfer: `reason` is the signal's, or the milliseconds of the time limit. */
export function givenUp(failed: Failed, reason: unknown): RpcError {
  const outOfTime = typeof reason === "number";
  const timedOut = outOfTime || (reason instanceof DOMException && reason.name === "TimeoutError");
  const why = outOfTime
    ? `${Math.round(reason)} ms have passed`
    : timedOut
      ? "its signal timed out"
      : "it was cancelled";
  return new RpcError({
    code: timedOut ? "deadline_exceeded" : "cancelled",
    message: `${describe(failed)}: ${why} after ${failed.moved} bytes`,
    origin: "local",
    transferredBytes: failed.moved,
    ...(outOfTime ? {} : { cause: reason }),
  });
}

/** The handler returned without waiting for the transfer. */
export function stoppedEarly(failed: Failed): RpcError {
  return new RpcError({
    code: "failed_precondition",
    message: `${describe(failed)} stopped after ${failed.moved} bytes: the call has ended, and its grants with it`,
    transferredBytes: failed.moved,
  });
}

/** A sealed transfer failed: its owner has sent the reason, or the ciphertext was wrong. */
export function refusedByOwner(failed: Failed, error: RpcError): RpcError {
  const { origin, fabric, retryable } = error;
  return new RpcError({
    // Memory that was not granted is not permitted, as where the provider refuses.
    code: error.code === "not_found" ? "permission_denied" : error.code,
    message: `${describe(failed)} ended after ${failed.moved} bytes: ${error.plainMessage}`,
    origin,
    retryable,
    transferredBytes: failed.moved,
    ...(fabric === undefined ? {} : { fabric }),
  });
}

/** The device cannot write the local memory. */
export function unpinned(failed: Failed): RpcError {
  const { code, why } = noPin;
  return new RpcError({ code, message: `${describe(failed)}: ${why}`, transferredBytes: 0 });
}

/** Local memory shows a file that has lost bytes: the moved bytes may be zeros. */
export function lostLocally(failed: Failed): RpcError {
  const { code, message, origin } = lostBytes(`${describe(failed)}: the local memory`);
  return new RpcError({ code, message, origin, transferredBytes: failed.moved });
}

/** Why the provider rejected a transfer. */
export interface Refusal {
  readonly error: RpcError;
  /** For a provider without a reason, where the owner can be asked: the owner's reason, or `error`. Never rejects. */
  readonly explained?: Promise<RpcError>;
}

/** The provider rejected the transfer with `status`. */
export function refused(failed: Failed, status: number): Refusal {
  const { port, explain } = failed.peer;
  const noFile = status !== noMemory ? undefined : port.scheme === "verbs" ? noPin : lostFile;
  const reason = noFile?.why ?? reasons[status];
  const error = fabricError({
    provider: port.provider,
    op: failed.op === "get" ? "fi_read" : "fi_write",
    code: status,
    message: `${describe(failed)} ended after ${failed.moved} bytes${reason === undefined ? "" : `: ${reason}`}`,
    rpcCode: noFile?.code,
    transferredBytes: failed.moved,
  });
  if (explain === undefined) return { error };
  // The owner's thread has not touched the memory. It must check the file before the file can grow again.
  if (noFile === lostFile)
    return { error, explained: ask(failed, explain.bind(failed.peer)).then(() => error) };
  const silent = port.refusesSilently && fabricErrorCode(status) === "unavailable";
  if (!silent) return { error };
  const explained = ask(failed, explain.bind(failed.peer)).then(
    (answer) => (answer === undefined ? error : withDetail(answer, error)),
    () => error,
  );
  return { error, explained };
}

async function ask(failed: Failed, explain: NonNullable<PeerLink["explain"]>): Promise<RpcError | undefined> {
  for (const question of questions(failed)) {
    const answer = await explain(question);
    if (answer !== undefined) return answer;
  }
  return undefined;
}

/** One question for each grant, about all of its bytes that the transfer touches. */
function questions({ op, parts }: Failed): RefusedTransfer[] {
  const needed = op === "get" ? "read" : "write";
  const byGrant = new Map<bigint, RefusedTransfer>();
  for (const { remote, offset, bytes } of parts) {
    if (bytes === 0) continue;
    const key = remote.grantKey;
    const from = remote.grantOffset + offset;
    const known = byGrant.get(key);
    const first = Math.min(from, known?.offset ?? from);
    const end = Math.max(from + bytes, known === undefined ? 0 : known.offset + known.bytes);
    byGrant.set(key, { key, needed, offset: first, bytes: end - first });
  }
  return [...byGrant.values()];
}

/** The owner's reason, with the details of the fabric. */
function withDetail(explained: RpcError, { plainMessage, fabric, transferredBytes }: RpcError): RpcError {
  return new RpcError({
    code: explained.code,
    message: `${plainMessage}: ${explained.plainMessage}`,
    origin: explained.origin,
    fabric,
    transferredBytes,
    retryable: explained.retryable,
  });
}

function describe({ op, parts, total }: Failed): string {
  const [part] = parts;
  if (part !== undefined && parts.length === 1) return `${op} of ${total} bytes at offset ${part.offset}`;
  return `${op} of ${total} bytes in ${parts.length} parts`;
}

interface ExplainDenialInput {
  readonly key: bigint;
  readonly needed: Access;
  readonly offset: number;
  readonly bytes: number;
}

/**
 * Serves `explainDenial`: whether the asker had the right to a transfer that the fabric rejected without a reason. The
 * answer is empty when it had, else the error for the transfer.
 */
export const explainDenialMethod = builtinMethod<ExplainDenialInput>(
  "explainDenial",
  ([key, needed, from, length]) => {
    const offset = asCount(from);
    const bytes = asCount(length);
    const fits =
      isUint64(key) &&
      (needed === "read" || needed === "write") &&
      offset !== undefined &&
      bytes !== undefined;
    return fits ? { key, needed, offset, bytes } : undefined;
  },
  ({ key, needed, offset, bytes }, call, peer) => {
    peer.grants.check(key, needed, offset, bytes);
    call.settle({ value: undefined });
  },
);
