import type { RpcCode } from "./code.ts";
import { RpcError } from "./rpc-error.ts";

/** One line of the table: the name of a number and its meaning for a call. */
type Meaning = readonly [name: string, code: RpcCode];

/**
 * Every number that libfabric can return, from `rdma/fi_errno.h`, and a few of the kernel that it passes on. Numbers
 * below 256 are the errno numbers of Linux, the only system of the addon.
 *
 * Choices that are not obvious:
 * - ECANCELED is `unavailable`. This library never asks the fabric to cancel a call: an aborted call settles before its
 *   completion arrives, and only `close` cancels receives, and expects the error. An ECANCELED that reaches a call
 *   means that the queue was flushed because the connection died (verbs and rxm report it so).
 * - ENOENT is `unavailable`: shm reports a missing or dead peer as a missing file.
 * - EIO and EREMOTEIO are `unavailable`: shm reports a put to a dead process as EIO, verbs a broken connection.
 * - ENODATA is `unimplemented`: `fi_getinfo` returns it when no provider of this machine has the requested features.
 * - EUSERS is `unavailable`: a port without a free descriptor in its process refused the connection.
 * - EADDRNOTAVAIL is `invalid_argument`: the address to listen on is not one of this machine.
 * - EINVAL, EFAULT, EBADF and FI_ETRUNC are `internal`: the engine checks lengths and arguments before the fabric
 *   sees them.
 */
const meanings: Readonly<Record<number, Meaning>> = Object.freeze({
  1: ["EPERM", "permission_denied"],
  2: ["ENOENT", "unavailable"],
  4: ["EINTR", "aborted"],
  5: ["EIO", "unavailable"],
  7: ["E2BIG", "invalid_argument"],
  9: ["EBADF", "internal"],
  11: ["EAGAIN", "resource_exhausted"],
  12: ["ENOMEM", "resource_exhausted"],
  13: ["EACCES", "permission_denied"],
  14: ["EFAULT", "internal"],
  16: ["EBUSY", "failed_precondition"],
  17: ["EEXIST", "already_exists"],
  19: ["ENODEV", "unimplemented"],
  22: ["EINVAL", "internal"],
  23: ["ENFILE", "resource_exhausted"],
  24: ["EMFILE", "resource_exhausted"],
  28: ["ENOSPC", "resource_exhausted"],
  30: ["EROFS", "failed_precondition"],
  32: ["EPIPE", "unavailable"],
  34: ["ERANGE", "out_of_range"],
  38: ["ENOSYS", "unimplemented"],
  42: ["ENOMSG", "internal"],
  61: ["ENODATA", "unimplemented"],
  71: ["EPROTO", "internal"],
  75: ["EOVERFLOW", "out_of_range"],
  87: ["EUSERS", "unavailable"],
  90: ["EMSGSIZE", "invalid_argument"],
  92: ["ENOPROTOOPT", "unimplemented"],
  93: ["EPROTONOSUPPORT", "unimplemented"],
  95: ["EOPNOTSUPP", "unimplemented"],
  97: ["EAFNOSUPPORT", "unimplemented"],
  98: ["EADDRINUSE", "already_exists"],
  99: ["EADDRNOTAVAIL", "invalid_argument"],
  100: ["ENETDOWN", "unavailable"],
  101: ["ENETUNREACH", "unavailable"],
  102: ["ENETRESET", "unavailable"],
  103: ["ECONNABORTED", "unavailable"],
  104: ["ECONNRESET", "unavailable"],
  105: ["ENOBUFS", "resource_exhausted"],
  106: ["EISCONN", "internal"],
  107: ["ENOTCONN", "unavailable"],
  108: ["ESHUTDOWN", "unavailable"],
  110: ["ETIMEDOUT", "unavailable"],
  111: ["ECONNREFUSED", "unavailable"],
  112: ["EHOSTDOWN", "unavailable"],
  113: ["EHOSTUNREACH", "unavailable"],
  114: ["EALREADY", "internal"],
  115: ["EINPROGRESS", "internal"],
  121: ["EREMOTEIO", "unavailable"],
  124: ["EMEDIUMTYPE", "internal"],
  125: ["ECANCELED", "unavailable"],
  129: ["EKEYREJECTED", "permission_denied"],
  256: ["FI_EOTHER", "unknown"],
  257: ["FI_ETOOSMALL", "internal"],
  258: ["FI_EOPBADSTATE", "failed_precondition"],
  259: ["FI_EAVAIL", "internal"],
  260: ["FI_EBADFLAGS", "unimplemented"],
  261: ["FI_ENOEQ", "internal"],
  262: ["FI_EDOMAIN", "internal"],
  263: ["FI_ENOCQ", "internal"],
  264: ["FI_ECRC", "data_loss"],
  265: ["FI_ETRUNC", "internal"],
  266: ["FI_ENOKEY", "permission_denied"],
  267: ["FI_ENOAV", "internal"],
  268: ["FI_EOVERRUN", "resource_exhausted"],
  269: ["FI_ENORX", "resource_exhausted"],
});

/** The name of a libfabric error number, "ECONNREFUSED" or "FI_ETRUNC"; `errno 77` for a number outside the table. */
export function fabricErrorName(code: number): string {
  return meanings[Math.abs(code)]?.[0] ?? `errno ${Math.abs(code)}`;
}

/** The number of an error by its name: Node's names are the same on all systems, but its numbers are not. */
export function fabricErrorNumber(name: string): number | undefined {
  const found = Object.entries(meanings).find(([, [known]]) => known === name);
  return found === undefined ? undefined : Number(found[0]);
}

/** The code of a libfabric error number for a call; `unknown` for a number outside the table. */
export function fabricErrorCode(code: number): RpcCode {
  return meanings[Math.abs(code)]?.[1] ?? "unknown";
}

/** The known data of a failure in the fabric. */
export interface FabricFailure {
  readonly provider: string;
  readonly op: string;
  /** libfabric's error number; the sign does not matter. */
  readonly code: number;
  /** The name libfabric gave, when it gave one. Default: the table's. */
  readonly name?: string | undefined;
  /** One sentence. Default: `fi_write over tcp failed: ECONNRESET (104)`. */
  readonly message?: string | undefined;
  /** Default: the code in the table. */
  readonly rpcCode?: RpcCode | undefined;
  /** Default: true where the peer or a queue may recover: `unavailable` and `resource_exhausted`. */
  readonly retryable?: boolean | undefined;
  readonly transferredBytes?: number | undefined;
  readonly callId?: number | undefined;
  readonly method?: string | undefined;
  readonly cause?: unknown;
}

/** Makes an `RpcError` of origin "fabric" from a failure of the fabric. The error keeps the fabric's detail. */
export function fabricError(failure: FabricFailure): RpcError {
  const number = Math.abs(failure.code);
  const name = failure.name || fabricErrorName(number);
  const code = failure.rpcCode ?? fabricErrorCode(number);
  return new RpcError({
    code,
    message: failure.message || `${failure.op} over ${failure.provider} failed: ${name} (${number})`,
    origin: "fabric",
    fabric: { provider: failure.provider, op: failure.op, code: number, name },
    retryable: failure.retryable ?? (code === "unavailable" || code === "resource_exhausted"),
    transferredBytes: failure.transferredBytes,
    callId: failure.callId,
    method: failure.method,
    ...("cause" in failure ? { cause: failure.cause } : {}),
  });
}

/** The meaning of the system's errors about descriptors, for users. By the error's name. */
export const noDescriptors: Readonly<Record<string, string>> = {
  EMFILE: "this process has no file descriptor left; raise the limit with `ulimit -n`",
  ENFILE: "this machine has no file descriptor left",
};

/** The error text for a connection that the peer's port refused (EUSERS). */
export const peerLacksDescriptors = "it has no file descriptor left for the connection";
