import { readdirSync, readFileSync } from "node:fs";
import { extname, join } from "node:path";
import { root } from "../setup/command.mjs";

/**
 * Forms that a reader has to read twice, with what is plain in their place. They count in comments and docstrings, and in
 * documents outside of code.
 */
const forms = [
  {
    form: /\b(?!tells? \w+ apart)(tell|tells|telling|told)\b/i,
    plain: "send, report, notify, say, or tell apart by another verb",
  },
  { form: /\b(whom|whoever|whomever)\b/i, plain: "the noun: the peer, the caller, the code that" },
  { form: /\b(is|are|was|were) none\b/i, plain: "there is no X, is undefined, is not an X" },
  { form: /\bof (before|now)\b/i, plain: "the former X, the present X, or what happened" },
  { form: /\bthe like of which\b/i, plain: "such as" },
  { form: /\b(come|comes|came) to nothing\b/i, plain: "fails, has no effect" },
  { form: /\bin (the|its|his|their|this side's|the other's) (stead|place of)\b/i, plain: "instead of, for" },
  { form: /\bof no use\b/i, plain: "useless, ignored" },
  { form: /\bin vain\b/i, plain: "without an answer, without success" },
  { form: /\b(hear|hears|heard) of\b/i, plain: "learns, is notified" },
  { form: /\bshall\b/i, plain: "is to, must" },
];

const folders = ["src", "packages", "native", "docs", "examples", "scripts"];
const documents = ["README.md", "CONTRIBUTING.md", "SECURITY.md"];
const left = /(^|\/)(node_modules|dist|build|results)(\/|$)/;

/**
 * Looks for the forms.
 *
 * @returns {Promise<import("./outcome.mjs").Outcome>} a problem for each place
 */
export async function checkProse() {
  const files = folders.flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, encoding: "utf8" }).map((name) => `${folder}/${name}`),
  );
  const problems = [...files, ...documents].filter((file) => !left.test(file)).flatMap(faultsOf);
  return { passed: problems.length === 0 ? 1 : 0, failed: problems.length === 0 ? 0 : 1, problems };
}

/** @param {string} file */
function faultsOf(file) {
  const proseOf = readers[extname(file)];
  if (proseOf === undefined) return [];
  return proseOf(readFileSync(join(root, file), "utf8").split("\n")).flatMap((line, index) =>
    forms
      .filter(({ form }) => form.test(line))
      .map(({ form, plain }) => `${file}:${index + 1}: "${form.exec(line)?.[0]}": ${plain}`),
  );
}

/**
 * The prose of each line, and nothing of its code.
 *
 * @type {Record<string, ((lines: string[]) => string[]) | undefined>}
 */
const readers = {
  ".md": proseOfMarkdown,
  ".ts": proseOfComments,
  ".mjs": proseOfComments,
  ".cc": proseOfComments,
  ".h": proseOfComments,
};

/** @param {string[]} lines */
function proseOfMarkdown(lines) {
  let isCode = false;
  return lines.map((line) => {
    const isFence = /^\s*```/.test(line);
    if (isFence) isCode = !isCode;
    return isCode || isFence ? "" : line.replace(/`[^`]*`/g, "`").replace(/\]\([^)]*\)/g, "]");
  });
}

/** @param {string[]} lines */
function proseOfComments(lines) {
  let isBlock = false;
  return lines.map((line) => {
    if (!isBlock && !/^\s*(\/\*|\/\/)/.test(line)) return /(?:^|\s)\/\/\/? (.*)$/.exec(line)?.[1] ?? "";
    isBlock = (isBlock || /^\s*\/\*/.test(line)) && !line.includes("*/");
    return line.replace(/`[^`]*`/g, "`");
  });
}
