import { createHash } from "node:crypto";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { Progress } from "./progress.ts";

/** What a file on the disk hashes to, and when it was last changed; undefined where it could not be read. */
export type References = ReadonlyMap<string, { readonly sha256: string; readonly modifiedMs: number }>;

const buffer = new Uint8Array(4 << 20);

/** Hashes each file once, straight from the disk, by a way that has nothing to do with what is being shown. */
export async function hashOnDisk(
  root: string,
  files: readonly { readonly path: string; readonly bytes: number }[],
  signal: AbortSignal,
): Promise<References> {
  const references = new Map<string, { sha256: string; modifiedMs: number }>();
  const progress = new Progress(
    "hashing the files on disk",
    files.reduce((sum, file) => sum + file.bytes, 0),
  );
  try {
    for (const { path } of files) {
      try {
        references.set(path, await hashFile(join(root, path), progress, signal));
      } catch (error) {
        signal.throwIfAborted();
        console.log(`cannot read ${path}: ${(error as Error).message}`);
      }
    }
  } catch (error) {
    progress.clear();
    throw error;
  }
  progress.done();
  return references;
}

async function hashFile(path: string, progress: Progress, signal: AbortSignal) {
  const file = await open(path);
  try {
    const hash = createHash("sha256");
    for (;;) {
      signal.throwIfAborted();
      const { bytesRead } = await file.read(buffer, 0, buffer.byteLength);
      if (bytesRead === 0) break;
      hash.update(buffer.subarray(0, bytesRead));
      progress.add(bytesRead);
    }
    return { sha256: hash.digest("hex"), modifiedMs: (await file.stat()).mtimeMs };
  } finally {
    await file.close();
  }
}
