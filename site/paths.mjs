import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";

/** The root of the checkout. */
export const root = fileURLToPath(new URL("../", import.meta.url));
/** What the site is made from: the repository's pages, and generated ones. Beside the packages that they need. */
export const source = `${root}site/.pages/`;
/** The site. */
export const output = `${root}build/site/`;

/** The first of these programs that the search path has. */
export function findProgram(...names) {
  const folders = (process.env.PATH ?? "").split(delimiter);
  return names
    .flatMap((name) => folders.map((folder) => join(folder, name)))
    .find((file) => existsSync(file));
}
