import { existsSync, statSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";

/** A folder, and what of it is served: paths below it, or `[""]` for all. */
export interface Source {
  readonly root: string;
  readonly entries: readonly string[];
  /** How to name it to a person. */
  readonly title: string;
}

/**
 * What is served when nothing is named: Node's own installation, hundreds of megabytes of real files on every machine
 * that can run this. Named piece by piece, because a Node from a package lies in /usr among everything else.
 */
export function nodeInstallation(): Source {
  const root = dirname(dirname(process.execPath));
  const pieces = [
    "bin/node",
    "include/node",
    "lib/node_modules",
    "share/doc/node",
    "share/doc/nodejs",
    "share/man/man1/node.1",
  ];
  const entries = pieces.filter((piece) => existsSync(join(root, piece)));
  if (entries.length > 0) return { root, entries, title: `Node's installation in ${root}` };
  return { root: dirname(process.execPath), entries: [basename(process.execPath)], title: process.execPath };
}

/** The source a person named: a folder, or a single file. Throws an Error with a sentence for that person. */
export function namedSource(path: string): Source {
  const absolute = resolve(path);
  const status = statSync(absolute, { throwIfNoEntry: false });
  if (status === undefined) throw new Error(`There is no folder or file ${absolute}`);
  if (status.isDirectory()) return { root: absolute, entries: [""], title: absolute };
  if (status.isFile()) return { root: dirname(absolute), entries: [basename(absolute)], title: absolute };
  throw new Error(`${absolute} is neither a folder nor a regular file`);
}
