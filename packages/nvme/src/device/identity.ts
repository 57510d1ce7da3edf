import { createHash } from "node:crypto";
import { type FileHandle, link, readFile, realpath, unlink } from "node:fs/promises";
import { hostname } from "node:os";
import { checkedBy, fail } from "cinnabar/options";
import { writeAtomically } from "./atomic-write.ts";

const isUuid = (value: unknown): value is string =>
  typeof value === "string" && /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(value);

/** A UUID, in lower case. */
export function checkedUuid(where: string, name: string, value: unknown): string {
  if (isUuid(value) && !/^[0-]+$/.test(value)) return value.toLowerCase();
  return fail(TypeError, where, name, "a UUID such as 7a4d0c5e-9a3b-4b6a-8a53-3b8d1a1f6a10", value);
}

/** The field `uuid` of a device's options. */
export const uuidField = checkedBy(checkedUuid);

/** A UUID that is the same for a text each time: version 8 of RFC 9562. */
export function uuidOfText(text: string): string {
  const hash = createHash("sha256").update(text).digest();
  hash[6] = ((hash[6] ?? 0) & 0x0f) | 0x80;
  hash[8] = ((hash[8] ?? 0) & 0x3f) | 0x80;
  return uuidOfBytes(hash);
}

/** The text of the first 16 bytes. */
export const uuidOfBytes = (bytes: Buffer): string =>
  bytes.toString("hex", 0, 16).replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");

export const bytesOfUuid = (uuid: string): Buffer => Buffer.from(uuid.replaceAll("-", ""), "hex");

/**
 * The UUID of a file. It is kept in a file beside it, `FILE.uuid`, which also says which file it belongs to: a copy, and
 * a file that replaces this one, are other disks. A block special file, and a file that has none and cannot get one,
 * have a UUID made of their names and this machine's.
 */
export async function uuidOfFile(path: string, file: FileHandle, isReadOnly: boolean): Promise<string> {
  const real = await realpath(path);
  const { ino, birthtimeNs, isFile } = await file.stat({ bigint: true }).then((stat) => ({
    ...{ ino: stat.ino, birthtimeNs: stat.birthtimeNs },
    isFile: stat.isFile(),
  }));
  const owner = `inode ${ino} born ${birthtimeNs}`;
  const made = uuidOfText(isFile ? `${hostname()} ${real} ${owner}` : `${hostname()} ${real}`);
  if (!isFile) return made;
  const beside = `${real}.uuid`;
  // Others may make it, or replace it, at the same time.
  for (let attempt = 0; attempt < 3; attempt++) {
    const text = await readFile(beside, "utf8").catch(() => undefined);
    const [uuid, ...rest] = text?.trim().split(" ") ?? [];
    if (isUuid(uuid) && rest.join(" ") === owner) return uuid.toLowerCase();
    if (isReadOnly) return made;
    try {
      if (text !== undefined) await unlink(beside);
      await writeAtomically(beside, `${made} ${owner}\n`, 0o644, link);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code !== "EEXIST" && code !== "ENOENT") return made;
    }
  }
  return made;
}
