import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

export const root = fileURLToPath(new URL("../../", import.meta.url));

/** The pages that users read: their blocks are compiled and run. */
export const userPages: readonly string[] = [
  "README.md",
  ...readdirSync(`${root}docs/guide`).map((name) => `docs/guide/${name}`),
];

/** A fenced block of a page. */
export interface Block {
  readonly page: string;
  /** The line of the page that its first line stands on, from 1 on. */
  readonly line: number;
  readonly language: string;
  readonly text: string;
  /** What the HTML comment before it says, or "". Readers do not see it. */
  readonly comment: string;
}

/** A module that blocks of a page make. */
export interface Module {
  readonly page: string;
  readonly name: string;
  /** Padded so that its lines stand where they stand on the page: the compiler's messages point into the page. */
  readonly text: string;
  /** A program named by a comment such as `// server.ts`, which must do without any context. */
  readonly isNamed: boolean;
}

export function blocksOf(page: string): Block[] {
  const lines = readFileSync(root + page, "utf8").split("\n");
  const blocks: Block[] = [];
  let comment = "";
  for (let i = 0; i < lines.length; i++) {
    const line = lines[i] ?? "";
    if (line.startsWith("<!--")) {
      const end = lines.findIndex((one, at) => at >= i && one.endsWith("-->"));
      comment = lines
        .slice(i, end + 1)
        .join("\n")
        .slice(4, -3)
        .trim();
      i = end;
      continue;
    }
    const language = /^```(\w*)$/.exec(line)?.[1];
    if (language === undefined) {
      if (line !== "") comment = "";
      continue;
    }
    const end = lines.indexOf("```", i + 1);
    const text = lines.slice(i + 1, end).join("\n");
    blocks.push({ page, line: i + 2, language, text, comment });
    comment = "";
    i = end;
  }
  return blocks;
}

/**
 * The modules of a page: each file that a comment `// name.ts` or `// name.mjs` begins, and each other block of
 * TypeScript, with the code of a comment `<!-- context: … -->` before it.
 */
export function modulesOf(page: string): Module[] {
  return blocksOf(page).flatMap((block) => {
    const files = namedFiles(block);
    if (files.length > 0) return files;
    return block.language === "ts" ? [fragment(block)] : [];
  });
}

function namedFiles({ page, line, text }: Block): Module[] {
  const lines = text.split("\n");
  const starts = lines.flatMap((one, at) => (/^\/\/ [\w-]+\.(ts|mjs)\b/.test(one) ? [at] : []));
  return starts.map((start, index) => ({
    page,
    name: /[\w-]+\.(ts|mjs)/.exec(lines[start] ?? "")?.[0] ?? "",
    text: "\n".repeat(line - 1 + start) + lines.slice(start, starts[index + 1]).join("\n"),
    isNamed: true,
  }));
}

function fragment({ page, line, text, comment }: Block): Module {
  const context = comment.startsWith("context:") ? comment.slice("context:".length) : "";
  const head = `${importsFor(`${context}\n${text}`)} ${context.replaceAll("\n", " ")} export {};`;
  return { page, name: `line-${line}.ts`, text: head + "\n".repeat(line - 1) + text, isNamed: false };
}

/** Imports of the names of Cinnabar and zod that a fragment uses without declaring or importing them. */
export function importsFor(code: string): string {
  const has = (name: string, before: string) =>
    new RegExp(`${before}(?<![.\\w"/-])${name}(?![\\w"-])`).test(code);
  const isMissing = (name: string) => has(name, "") && !has(name, bindings);
  const imports = exports.map(([module, names]) => {
    const missing = names.filter(isMissing);
    return missing.length > 0 ? `import { ${missing.join(", ")} } from "${module}";` : "";
  });
  return imports.filter((line) => line !== "").join(" ");
}

/** What stands before a name that a block declares or imports itself. */
const bindings = "\\b(?:const (?:[{[][^}\\]]*)?|import (?:type )?[{][^}]*)";

/** What modules export that a fragment may use without an import. */
const exports: readonly (readonly [module: string, names: readonly string[]])[] = [
  [
    "cinnabar",
    [...new Set(["index", "standard", "contract/standard"].flatMap((entry) => exportsOf(`src/${entry}.ts`)))],
  ],
  ["cinnabar/inspect", exportsOf("src/inspect.ts")],
  // Its values have names that pages use for other things, such as `group`.
  ["cinnabar/options", exportsOf("src/options.ts", "export type ")],
  ["cinnabar/testing", exportsOf("src/testing.ts")],
  ["cinnabar/native", exportsOf("src/native.ts")],
  [
    "cinnabar-bulk",
    [...new Set(["index", "standard"].flatMap((entry) => exportsOf(`packages/bulk/src/${entry}.ts`)))],
  ],
  ["cinnabar-lanes", exportsOf("packages/lanes/src/index.ts")],
  ["cinnabar-group", exportsOf("packages/group/src/index.ts")],
  ["cinnabar-group/variables", exportsOf("packages/group/src/variables.ts")],
  ["cinnabar-http", exportsOf("packages/http/src/index.ts")],
  ["cinnabar-http/client", exportsOf("packages/http/src/client.ts")],
  ["cinnabar-http/proto", exportsOf("packages/http/src/proto.ts")],
  ["cinnabar-http/client/upload", exportsOf("packages/http/src/upload.ts")],
  ["cinnabar-inspect", exportsOf("packages/inspect/src/index.ts")],
  ["cinnabar-nvme", exportsOf("packages/nvme/src/index.ts")],
  ["cinnabar-otel", exportsOf("packages/otel/src/index.ts")],
  ["cinnabar-serve", exportsOf("packages/serve/src/index.ts")],
  ["zod", ["z"]],
];

function exportsOf(file: string, before = ""): string[] {
  return [...readFileSync(root + file, "utf8").matchAll(new RegExp(`${before}\\{([^}]*)\\}`, "g"))]
    .flatMap((match) => (match[1] ?? "").split(","))
    .map((name) => name.replace("type ", "").trim())
    .filter((name) => name !== "");
}
