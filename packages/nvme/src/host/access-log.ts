import { accessOfCode, type NvmeAccess } from "../nvme/access.ts";
import { accessLogBytes } from "../nvme/identify.ts";

/** How long a log of access is, at most, of so many groups and namespaces. */
export const accessLogLength = (groups: number, namespaces: number): number =>
  accessLogBytes.header + groups * accessLogBytes.group + namespaces * 4;

/** The access to each namespace, as a log of the controller has it. A state that is not known is `inaccessible`. */
export function parseAccessLog(log: Buffer): ReadonlyMap<number, NvmeAccess> {
  const accesses = new Map<number, NvmeAccess>();
  let at = accessLogBytes.header;
  for (let groups = log.readUInt16LE(8); groups > 0 && at + accessLogBytes.group <= log.length; groups--) {
    let count = log.readUInt32LE(at + 4);
    const state = accessOfCode(log.readUInt8(at + 16) & 0xf) ?? "inaccessible";
    at += accessLogBytes.group;
    for (; count > 0 && at + 4 <= log.length; count--, at += 4) accesses.set(log.readUInt32LE(at), state);
  }
  return accesses;
}
