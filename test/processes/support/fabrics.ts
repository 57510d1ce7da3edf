import { tmpdir } from "node:os";
import { join } from "node:path";
import { isLong } from "../../matrix/long.ts";
import { isOverNet } from "../../matrix/over-net.ts";
import { type VerbsDevice, verbsDevices } from "../../matrix/verbs.ts";

export type Fabric = "shm" | "tcp" | "net" | "net+unix" | `verbs on ${string}`;

const sockets: readonly Fabric[] = ["net", "net+unix"];

/** The fabrics that reach another process. Beside the stage `net`, the long form alone has Node's sockets. */
export const fabrics: readonly Fabric[] = isOverNet
  ? sockets
  : [
      "shm",
      "tcp",
      ...verbsDevices.map(({ name }) => `verbs on ${name}` as const),
      ...(isLong && verbsDevices.length === 0 ? sockets : []),
    ];

/** `fabrics`, and `net` in the short form too. */
export const fabricsAndNet: readonly Fabric[] = fabrics.includes("net") ? fabrics : [...fabrics, "net"];

/**
 * Fabrics whose ports have a guard, which answers while the event loop is blocked. Node's sockets have none: no native
 * code runs beside the loop.
 */
export const guardedFabrics: readonly Fabric[] = fabrics.filter((fabric) => !isSocket(fabric));

/** For what a program does in the same way whatever the fabric: in the short form not over tcp too. */
export const anyFabrics: readonly Fabric[] = isLong ? fabrics : fabrics.filter((fabric) => fabric !== "tcp");

/** For what has a TCP connection under it. */
export const tcpFabric: Fabric = isOverNet ? "net" : "tcp";

export function isSocket(fabric: Fabric): boolean {
  return sockets.includes(fabric);
}

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
  if (fabric === "shm") return `${fabric}://${freshName()}`;
  if (fabric === "tcp" || fabric === "net") return `${fabric}://127.0.0.1:0`;
  if (fabric === "net+unix") return `net+unix://${join(tmpdir(), freshName())}`;
  const { host } = verbsDevices.find(({ name }) => fabric === `verbs on ${name}`) as VerbsDevice;
  return `verbs://${host}:0`;
}

export function freshName(): string {
  return `test.${process.pid}.${++names}`;
}

/** Under a sanitizer everything is slower, and memory and processor time say nothing. */
export const underSanitizers = process.env.CINNABAR_SANITIZERS !== undefined;
