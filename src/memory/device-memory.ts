import { RpcError } from "../base/errors/rpc-error.ts";
import { shown } from "../base/options/assert-options.ts";
import { requireLibfabric } from "../fabric/libfabric/libfabric.ts";
import type { NativeScheme } from "../fabric/libfabric/url.ts";
import type { Port } from "../fabric/port.ts";

/** Where memory lies: in the host, or in a device, by the device's number in its runtime (CUDA, ROCr, Level Zero). */
export type MemoryKind =
  | "host"
  | { readonly cuda: number }
  | { readonly rocr: number }
  | { readonly levelZero: number };

const deviceKinds = ["cuda", "rocr", "levelZero"] as const;
type DeviceKind = (typeof deviceKinds)[number];

const wanted = '"host", { cuda: number }, { rocr: number } or { levelZero: number }';
const maxDevice = 65_535;

/**
 * Checks the option `memory`. Only host memory is implemented: undefined or "host". `port` is the port that would
 * register it, if it is known; the message then names its provider only.
 *
 * @throws TypeError for an invalid value; RpcError `unimplemented` for memory of a device, with the reason.
 */
export function assertMemoryKind(op: string, memory: unknown, port?: Port): void {
  if (memory === undefined || memory === "host") return;
  const kind = deviceKindOf(op, memory);
  const device = (memory as Readonly<Record<string, unknown>>)[kind];
  throw new RpcError({
    code: "unimplemented",
    message: `${op}: memory { ${kind}: ${device} } cannot be registered: ${reasonAgainst(kind, port)}`,
    origin: "local",
  });
}

function deviceKindOf(op: string, memory: unknown): DeviceKind {
  if (typeof memory !== "object" || memory === null)
    throw new TypeError(`${op}: memory must be ${wanted}, it is ${shown(memory)}`);
  const names = Object.keys(memory);
  const kind = deviceKinds.find((known) => known === names[0]);
  if (names.length !== 1 || kind === undefined)
    throw new TypeError(
      `${op}: memory must be ${wanted}, it has ${names.length === 0 ? "no fields" : `the fields ${names.join(", ")}`}`,
    );
  const device = (memory as Record<string, unknown>)[kind];
  if (!Number.isSafeInteger(device) || (device as number) < 0 || (device as number) > maxDevice)
    throw new TypeError(
      `${op}: memory.${kind} must be an integer from 0 to ${maxDevice}, it is ${shown(device)}`,
    );
  return kind;
}

function reasonAgainst(kind: DeviceKind, port: Port | undefined): string {
  if (port?.scheme === "mem") return "provider mem moves host memory only";
  const schemes: readonly NativeScheme[] =
    port === undefined ? ["shm", "tcp", "verbs"] : [port.scheme as NativeScheme];
  let reasons: string[];
  try {
    const addon = requireLibfabric();
    reasons = schemes.map((scheme) => addon.deviceMemory(scheme, kind)).filter((reason) => reason !== "");
  } catch (error) {
    if (!(error instanceof RpcError)) throw error;
    return "libfabric is not installed here";
  }
  // The provider could do it, but this version registers no device pointers.
  if (reasons.length < schemes.length) reasons.push("this version of Cinnabar registers host memory only");
  return reasons.join("; ");
}
