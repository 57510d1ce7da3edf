import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, posix } from "node:path";
import { landingPage } from "./landing.mjs";
import { root, source } from "./paths.mjs";
import { sectionTarget, troubleshooting, troubleshootingPages } from "./troubleshooting.mjs";

/** The files of the repository, or those that are about to be. */
const files = execFileSync("git", ["ls-files", "--cached", "--others", "--exclude-standard"], {
  cwd: root,
  encoding: "utf8",
}).split("\n");

const isPage = (file) => /^(README|CHANGELOG|CONTRIBUTING|SECURITY)\.md$|^docs\/.*\.md$/.test(file);
const isExample = (file) => /^examples\/(?!demo\/).*\.ts$/.test(file);

/** Copies the pages of the repository, and makes a page of each example. Nothing is changed but links to files. */
export function stagePages() {
  for (const file of files.filter(isPage)) {
    const pages =
      file === troubleshooting
        ? troubleshootingPages(read(file))
        : [{ target: target(file), text: read(file) }];
    for (const page of pages) put(page.target, relink(file, tabs(page.text), page.target));
  }
  put("index.md", relink("README.md", landingPage(read("README.md")), "index.md"));
  for (const file of files.filter((file) => file.startsWith("docs/images/"))) copy(file, source);
  for (const file of files.filter(isExample)) put(target(file), examplePage(file));
  put("examples/index.md", listOfExamples());
}

/** Where a file of the repository is on the site, as a page; undefined where it is none. */
function target(file) {
  if (file === "README.md") return "about.md";
  if (isPage(file)) return file;
  if (isExample(file)) return file.replace(/\.ts$/, ".md");
  return /^examples(\/[\w-]+)?$/.test(file) ? "examples/index.md" : undefined;
}

/** A program of several files in one block, each begun by its name, becomes tabs. */
function tabs(text) {
  return text.replaceAll(/^```ts\n([\s\S]*?)^```$/gm, (block, code) => {
    const files = code.split(/^(?=\/\/ [\w-]+\.ts$)/m).filter((part) => part.trim() !== "");
    const names = files.map((part) => /^\/\/ ([\w-]+\.ts)\n/.exec(part)?.[1]);
    if (files.length < 2 || names.includes(undefined)) return block;
    const each = files.map((part, index) => {
      const [, ...lines] = part.trimEnd().split("\n");
      return `\`\`\`ts [${names[index]}]\n${lines.join("\n")}\n\`\`\``;
    });
    return `::: code-group\n\n${each.join("\n\n")}\n\n:::`;
  });
}

/**
 * Links to examples lead to their pages, links to sections of the messages to theirs, and links to other files to
 * copies of them. `page` is the file of the repository, `place` where the site has it.
 */
function relink(page, text, place) {
  const pictures = text.replaceAll(/(src|srcset)="(?=docs\/)/g, '$1="./');
  return pictures.replaceAll(/\]\((?!https?:|#)([^)#\s]*)(#[^)\s]*)?\)/g, (link, to, anchor = "") => {
    const file = posix.join(posix.dirname(page), to).replace(/\/$/, "");
    const own = target(file);
    // Nothing of ours, as in a program: left as it is.
    if (own === undefined && !files.includes(file)) return link;
    if (own === undefined) copyPublic(file);
    const from = posix.dirname(place);
    if (own === troubleshooting && anchor !== "")
      return `](./${posix.relative(from, sectionTarget(anchor.slice(1)))})`;
    const path = posix.relative(from, own ?? file);
    return `](${path.startsWith(".") ? path : `./${path}`}${anchor})`;
  });
}

/** An example as a page: what its first comment says, and the program. */
function examplePage(file) {
  return `# ${file.slice("examples/".length)}\n\n${summary(file)}\n\n\`\`\`ts\n${read(file).trimEnd()}\n\`\`\`\n`;
}

/** The comment at the top of a program, without how to run it; or what its first export says. */
function summary(file) {
  const text = read(file);
  const top =
    /^(?:\/\/ .*\n)+/.exec(text)?.[0] ??
    /\/\*\* ([\s\S]*?) ?\*\//.exec(text)?.[1] ??
    "A part of the example.";
  const plain = top.replaceAll(/^\s*(\/\/|\*) ?/gm, "").replaceAll(/\s+/g, " ");
  return plain.replaceAll(/ ?Run it with `[^`]*`\.?/g, "").trim();
}

function listOfExamples() {
  const folders = [
    ["Begin", /^examples\/0\d[^/]*$/],
    ["Recipes", /^examples\/recipes\//],
    ["Deploy", /^examples\/deploy\//],
    ["Groups", /^examples\/group\//],
    ["Middleware", /^examples\/middleware\//],
  ];
  const rest = files.filter(isExample).filter((file) => !folders.some(([, those]) => those.test(file)));
  const groups = [
    ...folders.map(([title, those]) => [title, files.filter((file) => isExample(file) && those.test(file))]),
    ["More", rest],
  ];
  const text = groups
    .filter(([, list]) => list.length > 0)
    .map(([title, list]) => {
      const lines = list.map((file) => {
        const name = file.slice("examples/".length);
        return `- [${name.replace(/^[\w-]+\//, "")}](${name.replace(/\.ts$/, ".md")}): ${summary(file)}`;
      });
      return `## ${title}\n\n${lines.join("\n")}\n`;
    });
  return `# Examples\n\nEach program runs by itself: \`npm run example -- NAME\`.\n\n${text.join("\n")}`;
}

function read(file) {
  return readFileSync(root + file, "utf8");
}

function put(file, text) {
  mkdirSync(dirname(source + file), { recursive: true });
  writeFileSync(source + file, text);
}

/** A file that the site serves as it is. */
function copyPublic(file) {
  copy(file, `${source}public/`);
}

function copy(file, folder) {
  cpSync(root + file, folder + file, { recursive: true });
}
