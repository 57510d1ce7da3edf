import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { readResults } from "../suite/against.ts";
import { picture, pictureTable } from "./picture.ts";

/** The results that the README shows, under the repository's root. */
const resultsFile = "bench/results/last.json";
const tablePage = "docs/guide/benchmarks.md";
const tableBegin = "<!-- figures: npm run bench -- --figures -->";
const tableEnd = "<!-- end of figures -->";

/**
 * The files that show the last results, by their path under the repository's root, with the text that they should have.
 */
export function pictureFiles(root: string): ReadonlyMap<string, string> {
  const results = readResults(readFileSync(join(root, resultsFile), "utf8"), resultsFile);
  const page = readFileSync(join(root, tablePage), "utf8");
  const begin = page.indexOf(tableBegin);
  const end = page.indexOf(tableEnd);
  if (begin === -1 || end < begin) throw new Error(`${tablePage} lacks ${tableBegin} or ${tableEnd}`);
  const upToTable = page.slice(0, begin + tableBegin.length);
  return new Map([
    ["docs/images/figures-light.svg", picture(results, "light")],
    ["docs/images/figures-dark.svg", picture(results, "dark")],
    [tablePage, `${upToTable}\n\n${pictureTable(results)}\n\n${page.slice(end)}`],
  ]);
}

/** Draws the pictures of the README and writes the table behind them. Returns the files written. */
export function writePictures(root: string): readonly string[] {
  const files = pictureFiles(root);
  mkdirSync(join(root, "docs/images"), { recursive: true });
  for (const [file, text] of files) writeFileSync(join(root, file), text);
  return [...files.keys()];
}
