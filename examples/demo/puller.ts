import { createHash } from "node:crypto";
import type { Engine } from "cinnabar";
import type { FilesClient, RemoteFile } from "./client.ts";
import { Progress } from "./progress.ts";
import type { References } from "./reference.ts";

/** Files in flight at once, and the registered memory each of them has. A larger file comes through in several windows. */
const lanes = 4;
const windowBytes = 16 << 20;

export interface PullResult {
  readonly elapsedMs: number;
  readonly bytes: number;
  readonly verified: number;
  /** A sentence for each file that is not verified. */
  readonly problems: readonly string[];
}

/**
 * Pulls every file into a fixed set of registered regions and compares the SHA-256 of what arrived with the disk's. A file that cannot be had or
 * differs is a problem to be told; a server that is gone ends it all.
 */
export async function pullAll(
  engine: Engine,
  client: FilesClient,
  files: readonly RemoteFile[],
  references: References,
  title: string,
  signal: AbortSignal,
): Promise<PullResult> {
  const progress = new Progress(
    title,
    files.reduce((sum, file) => sum + file.bytes, 0),
  );
  const problems: string[] = [];
  const failed = new AbortController();
  const either = AbortSignal.any([signal, failed.signal]);
  const started = performance.now();
  let next = 0;
  let bytes = 0;

  const lane = async () => {
    const window = new Uint8Array(windowBytes);
    using region = engine.expose(window, { access: "write" });
    for (;;) {
      const file = files[next++];
      if (file === undefined) return;
      either.throwIfAborted();
      const hash = createHash("sha256");
      let offset = 0;
      let problem: string | undefined;
      // Once for an empty file, too: that it can be opened over there is part of what is shown.
      do {
        const length = Math.min(windowBytes, file.bytes - offset);
        const result = await client.pull.result(
          { path: file.path, offset, length, into: region },
          { signal: either },
        );
        if (!result.ok) {
          if (result.error.reason === undefined) throw result.error;
          problem = `${file.path}: ${result.error.message}`;
          break;
        }
        hash.update(window.subarray(0, result.value.bytes));
        offset += result.value.bytes;
        bytes += result.value.bytes;
        progress.add(result.value.bytes);
        if (result.value.bytes < length) break;
      } while (offset < file.bytes);
      problem ??= compare(file, offset, hash.digest("hex"), references);
      if (problem !== undefined) problems.push(problem);
    }
  };

  const work = Array.from({ length: lanes }, lane);
  try {
    await Promise.all(work);
  } catch (error) {
    // The other lanes end before their memory does.
    failed.abort(error);
    await Promise.allSettled(work);
    progress.clear();
    throw error;
  }
  progress.done();
  return {
    elapsedMs: performance.now() - started,
    bytes,
    verified: files.length - problems.length,
    problems,
  };
}

function compare(
  file: RemoteFile,
  bytes: number,
  sha256: string,
  references: References,
): string | undefined {
  const reference = references.get(file.path);
  if (reference === undefined) return `${file.path}: no reference, the file could not be read from the disk`;
  if (bytes === file.bytes && sha256 === reference.sha256) return undefined;
  if (reference.modifiedMs !== file.modifiedMs) return `${file.path}: was changed while it was served`;
  return `${file.path}: DIFFERS, ${bytes} of ${file.bytes} bytes came, SHA-256 ${sha256} instead of ${reference.sha256}`;
}
