import {
  type Access,
  isRegionHandleLike,
  isRegionLike,
  isRemoteRegionLike,
  permits,
} from "../memory/region-kind.ts";
import { type ByteLengthOptions, describeLengthFault, resolveByteLength } from "./byte-length.ts";

/** The checks of the schemas of regions, handles and bytes, for schemas of any library. */

/** The fault of a value as a sentence; `undefined` if it has none. */
export type Check = (value: unknown) => string | undefined;

/** The common properties of all libraries' schemas for one kind of value. */
export interface Checked {
  readonly check: Check;
  /** Its JSON Schema. */
  readonly json: Readonly<Record<string, unknown>>;
  /** A region of the caller: only the input of a call can carry it. */
  readonly isCallerMemory?: true;
}

const accesses: readonly string[] = ["read", "write", "read_write"] satisfies Access[];

function assertAccess(where: string, access: unknown): void {
  if (accesses.includes(access as string)) return;
  throw new TypeError(
    `${where}: access must be "read", "write" or "read_write", not ${JSON.stringify(access)}`,
  );
}

/** @throws TypeError for an unknown access or option, or a limit that is not an integer of at least 0. */
export function bulkCheck(needed: Access, options: ByteLengthOptions): Checked {
  assertAccess("bulk", needed);
  const limits = resolveByteLength("bulk", options);
  const check: Check = (value) => {
    if (!isRegionLike(value) && !isRemoteRegionLike(value)) return "expected a region";
    if (!permits(value.access, needed))
      return `the region was exposed as "${value.access}"; the method needs "${needed}"`;
    const fault = describeLengthFault(value.byteLength, limits);
    return fault === undefined ? undefined : `the region ${fault}`;
  };
  const json = { type: "object", "x-cinnabar-bulk": { access: needed, ...options } };
  return { check, json, isCallerMemory: true };
}

/** @throws TypeError for an unknown access or option, or a limit that is not an integer of at least 0. */
export function handleCheck(needed: Access, options: ByteLengthOptions): Checked {
  assertAccess("handle", needed);
  const limits = resolveByteLength("handle", options);
  const check: Check = (value) => {
    if (!isRegionHandleLike(value)) return "expected a handle of a region";
    if (!permits(value.access, needed))
      return `the handle grants "${value.access}"; the method needs "${needed}"`;
    const fault = describeLengthFault(value.byteLength, limits);
    return fault === undefined ? undefined : `the handle's region ${fault}`;
  };
  return { check, json: { type: "object", "x-cinnabar-handle": { access: needed, ...options } } };
}

/** @throws TypeError for an unknown option, or a limit that is not an integer of at least 0. */
export function bytesCheck(options: ByteLengthOptions): Checked {
  const limits = resolveByteLength("bytes", options);
  const check: Check = (value) =>
    isBytes(value) ? describeLengthFault(value.byteLength, limits) : "expected a Uint8Array";
  const json = { type: "string", contentEncoding: "base64", "x-cinnabar-bytes": { ...options } };
  return { check, json };
}

/**
 * Also true for a Uint8Array of another realm (a vm context, a test runner's sandbox), for which `instanceof` is false.
 */
function isBytes(value: unknown): value is Uint8Array {
  return (
    value instanceof Uint8Array ||
    (ArrayBuffer.isView(value) && Object.prototype.toString.call(value) === "[object Uint8Array]")
  );
}
