import { constants } from "node:fs";
import { access, lstat, readdir } from "node:fs/promises";
import { join } from "node:path";

export interface CatalogFile {
  /** Below the root, with slashes. */
  readonly path: string;
  readonly bytes: number;
  readonly modifiedMs: number;
}

/** What was found and is not served, by why. */
export interface Skipped {
  symlinks: number;
  unreadable: number;
  /** Sockets, pipes and devices. */
  special: number;
}

/** Every regular, readable file below a folder; only what is in here is ever served, whatever a client asks for. */
export interface Catalog {
  readonly root: string;
  readonly files: readonly CatalogFile[];
  readonly byPath: ReadonlyMap<string, CatalogFile>;
  readonly bytes: number;
  readonly skipped: Skipped;
}

/**
 * Reads what lies at the named entries of the root; `[""]` is the root itself. Symbolic links are counted, never
 * followed.
 */
export async function readCatalog(
  root: string,
  entries: readonly string[],
  signal: AbortSignal,
): Promise<Catalog> {
  const files: CatalogFile[] = [];
  const skipped: Skipped = { symlinks: 0, unreadable: 0, special: 0 };

  const visit = async (path: string): Promise<void> => {
    signal.throwIfAborted();
    const absolute = join(root, path);
    try {
      const status = await lstat(absolute);
      if (status.isSymbolicLink()) skipped.symlinks++;
      else if (status.isDirectory()) {
        const names = await readdir(absolute);
        for (const name of names.sort()) await visit(path === "" ? name : `${path}/${name}`);
      } else if (status.isFile()) {
        await access(absolute, constants.R_OK);
        files.push({ path, bytes: status.size, modifiedMs: status.mtimeMs });
      } else skipped.special++;
    } catch (error) {
      if (signal.aborted) throw error;
      skipped.unreadable++;
    }
  };
  for (const entry of entries) await visit(entry);

  return {
    root,
    files,
    byPath: new Map(files.map((file) => [file.path, file])),
    bytes: files.reduce((sum, file) => sum + file.bytes, 0),
    skipped,
  };
}
