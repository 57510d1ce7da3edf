import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { newestRelease } from "../suite/history.ts";
import { picture, pictureTable, readmeTable } from "./picture.ts";

/** The ratios of each release, and the figures that README and guide show, under the repository's root. */
export const historyFile = "bench/results/history.json";
const tableBegin = "<!-- figures: npm run bench -- --figures -->";
const tableEnd = "<!-- end of figures -->";

/**
 * The files that show the newest release's figures, by their path under the repository's root, with the text that they
 * should have.
 */
export function pictureFiles(root: string): ReadonlyMap<string, string> {
  const results = newestRelease(readFileSync(join(root, historyFile), "utf8"));
  const withTable = (page: string, table: string): [string, string] => {
    const text = readFileSync(join(root, page), "utf8");
    const begin = text.indexOf(tableBegin);
    const end = text.indexOf(tableEnd);
    if (begin === -1 || end < begin) throw new Error(`${page} lacks ${tableBegin} or ${tableEnd}`);
    return [page, `${text.slice(0, begin + tableBegin.length)}\n\n${table}\n\n${text.slice(end)}`];
  };
  return new Map([
    ["docs/images/figures-light.svg", picture(results, "light")],
    ["docs/images/figures-dark.svg", picture(results, "dark")],
    withTable("README.md", readmeTable(results)),
    withTable("docs/guide/benchmarks.md", pictureTable(results)),
  ]);
}

/** Draws the pictures of the guide and writes its table and that of README.md. Returns the files written. */
export function writePictures(root: string): readonly string[] {
  const files = pictureFiles(root);
  mkdirSync(join(root, "docs/images"), { recursive: true });
  for (const [file, text] of files) writeFileSync(join(root, file), text);
  return [...files.keys()];
}
