import { readFileSync } from "node:fs";
import { join } from "node:path";

/** A page without its fenced blocks and comments, line by line. */
export function proseOf(folder: string, page: string): string[] {
  return readFileSync(join(folder, page), "utf8")
    .replaceAll(/^```[\s\S]*?^```$|^<!--[\s\S]*?-->$/gm, "")
    .split("\n");
}

/** The links of a page to files and headings, as they are written. Those to other hosts are left out. */
export function linksOf(folder: string, page: string): string[] {
  const targets = proseOf(folder, page)
    .join("\n")
    .matchAll(/(?:\]\(|(?:src|srcset|href)=")([^)\s"]+)/g);
  return [...targets].map(([, target = ""]) => target).filter((target) => !/^[a-z]+:/.test(target));
}
