import { isLong } from "../../matrix/long.ts";
import { type VerbsDevice, verbsDevices } from "../../matrix/verbs.ts";

export type Fabric = "shm" | "tcp" | "net" | `verbs on ${string}`;

/** The fabrics that reach another process, and how to listen on each. */
export const fabrics: readonly Fabric[] = [
  "shm",
  "tcp",
  ...verbsDevices.map(({ name }) => `verbs on ${name}` as const),
];

/** The same and Node's sockets, which have no guard: it would answer while the event loop is blocked. */
export const fabricsAndNet: readonly Fabric[] = [...fabrics, "net"];

/** For what a program does in the same way whatever the fabric: in the short form not over tcp too. */
export const anyFabrics: readonly Fabric[] = isLong ? fabrics : fabrics.filter((fabric) => fabric !== "tcp");

/** An RDMA device, which is in software in the guest, where all processes share one processor. */
export const isDevice = (fabric: Fabric): boolean => fabric.startsWith("verbs");

/**
 * Whether a put may be under way while its target sends something else. Linux's soft-iWARP then answers the empty read
 * that proves the put with bytes, which ends the connection (docs/design/verbs.md).
 */
export const answersEmptyReads = (fabric: Fabric): boolean => fabric !== "verbs on siw";

let names = 0;

/** A URL to listen at that nobody else uses. */
export function freshUrl(fabric: Fabric): string {
  if (fabric === "shm") return `shm://${freshName()}`;
  if (fabric === "tcp" || fabric === "net") return `${fabric}://127.0.0.1:0`;
  const { host } = verbsDevices.find(({ name }) => fabric === `verbs on ${name}`) as VerbsDevice;
  return `verbs://${host}:0`;
}

export function freshName(): string {
  return `test.${process.pid}.${++names}`;
}

/** Under a sanitizer everything is slower, and memory and processor time say nothing. */
export const underSanitizers = process.env.CINNABAR_SANITIZERS !== undefined;
