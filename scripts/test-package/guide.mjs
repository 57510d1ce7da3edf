import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "../setup/command.mjs";

/** Packages that the guide's first pages install beside `cinnabar`. */
export const guidePackages = ["zod", "tsx", "typescript", "@types/node"];

/**
 * Writes what a reader of the guide's first pages writes: the commands of docs/guide/first-service.md, its programs, and
 * the settings of docs/guide/install.md.
 *
 * @param {string} folder made for it
 * @returns {string} what the page says that its programs print
 */
export function writeGuide(folder) {
  const install = readFileSync(join(root, "docs/guide/install.md"), "utf8");
  const page = readFileSync(join(root, "docs/guide/first-service.md"), "utf8");
  mkdirSync(folder);
  for (const [, program = ""] of page.matchAll(/^```ts\n([\s\S]*?)^```/gm))
    for (const text of program.split(/^(?=\/\/ [\w-]+\.ts$)/m)) {
      const name = /^\/\/ ([\w-]+\.ts)$/m.exec(text)?.[1];
      if (name !== undefined) writeFileSync(join(folder, name), text);
    }
  writeFileSync(join(folder, "tsconfig.json"), blockOf(install, "json"));
  writeFileSync(join(folder, "commands.sh"), `set -e\n${blockOf(page, "sh")}`);
  return [...page.matchAll(/^<!-- prints: .*\n```text\n([\s\S]*?)^```/gm)].map(([, text]) => text).join("");
}

/**
 * @param {string} page
 * @param {string} language
 */
function blockOf(page, language) {
  const text = new RegExp(`^\`\`\`${language}\\n([\\s\\S]*?)^\`\`\``, "m").exec(page)?.[1];
  if (text === undefined) throw new Error(`the page has no block of ${language}`);
  return text;
}
