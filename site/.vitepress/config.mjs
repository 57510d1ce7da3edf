import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitepress";

const source = fileURLToPath(new URL("../.pages/", import.meta.url));
const { repository } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8"));
/** Where the sources are, for a browser; undefined while package.json names no repository. */
const sources = repository?.url.replace(/^git\+|\.git$/g, "");

export default defineConfig({
  title: "Cinnabar",
  description: "RPC for TypeScript over RDMA: typed calls and one-sided bulk transfers on libfabric",
  lang: "en",
  srcDir: ".pages",
  outDir: "../build/site",
  cacheDir: ".vitepress/cache",
  // Links work from any folder of a server.
  base: process.env.CINNABAR_SITE_BASE ?? "/",
  lastUpdated: false,
  markdown: {
    anchor: { slugify: slugOf },
    headers: { slugify: slugOf },
    config: (markdown) => {
      markdown.core.ruler.push("labels", labelCells);
      const fence = markdown.renderer.rules.fence?.bind(markdown.renderer.rules);
      markdown.renderer.rules.fence = (tokens, index, ...rest) => {
        const token = tokens[index];
        if (token.info.trim() !== "mermaid") return fence?.(tokens, index, ...rest) ?? "";
        return `<Diagram code="${encodeURIComponent(token.content)}" />`;
      };
    },
  },
  themeConfig: {
    search: { provider: "local", options: { detailedView: true } },
    outline: [2, 3],
    nav: [
      { text: "Guide", link: "/docs/guide/", activeMatch: "/docs/guide/" },
      { text: "API", link: "/api/", activeMatch: "/api/" },
      { text: "Examples", link: "/examples/", activeMatch: "/examples/" },
      { text: "Design", link: "/docs/architecture", activeMatch: "/docs/(design|architecture|protocol)" },
      { text: "Results", link: "/docs/results/", activeMatch: "/docs/results/" },
      { text: "Changes", link: "/CHANGELOG" },
      ...(sources === undefined ? [] : [{ text: "Sources", link: sources }]),
    ],
    sidebar: {
      "/docs/guide/": listed("docs/guide/index.md"),
      "/api/": reference(),
      "/examples/": listed("examples/index.md"),
      "/docs/results/": [
        { text: "Results", items: listed("docs/results/index.md", "Results")[0]?.items ?? [] },
      ],
      "/docs/": [
        {
          text: "Overview",
          items: [
            { text: "Architecture", link: "/docs/architecture" },
            { text: "Protocol", link: "/docs/protocol" },
          ],
        },
        ...listed("docs/design/index.md"),
      ],
      "/": listed("docs/guide/index.md"),
    },
    docFooter: { prev: "Previous", next: "Next" },
  },
});

/** Names of so many characters fit the first column of a table in one piece. */
const mostOfName = 24;

/**
 * Gives each cell of a table the heading of its column, which a narrow screen shows before it. A first cell whose words
 * are short is marked, so that they are not broken.
 */
function labelCells({ tokens }) {
  let headings = [];
  let column = 0;
  for (const [index, { type, attrSet }] of tokens.entries()) {
    if (type === "thead_open") headings = [];
    else if (type === "tr_open") column = 0;
    else if (type === "th_open") headings.push(tokens[index + 1]?.content.replaceAll(/[`*]/g, "") ?? "");
    else if (type === "td_open") {
      const words = tokens[index + 1]?.content.split(/\s+/) ?? [];
      if (column === 0 && words.every((word) => word.length <= mostOfName))
        attrSet.call(tokens[index], "class", "names");
      attrSet.call(tokens[index], "data-label", headings[column++] ?? "");
    }
  }
}

/** The anchor that GitHub gives to a heading, so that links lead to it in both places. */
function slugOf(heading) {
  return heading
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N} _-]/gu, "")
    .replaceAll(" ", "-");
}

/** A side bar in the order of a page that is a list of links under headings. */
function listed(page, title) {
  const folder = page.slice(0, page.lastIndexOf("/") + 1);
  const groups = title === undefined ? [] : [{ text: title, items: [] }];
  for (const line of readFileSync(source + page, "utf8").split("\n")) {
    const heading = /^## (.*)/.exec(line)?.[1];
    if (heading !== undefined) groups.push({ text: heading, items: [] });
    if (!line.startsWith("- ")) continue;
    for (const [, text, target] of line.split(":")[0].matchAll(/\[([^\]]*)\]\(([^)]*)\.md\)/g))
      groups.at(-1)?.items.push({ text, link: new URL(`${folder}${target}`, "file:///").pathname });
  }
  return groups;
}

/**
 * A side bar of the generated reference: functions and classes. Each page carries the side bar, so the rest is on the
 * page of all exports and in the search.
 */
function reference() {
  return Object.entries({
    index: "cinnabar",
    inspect: "cinnabar/inspect",
    options: "cinnabar/options",
    native: "cinnabar/native",
    testing: "cinnabar/testing",
    bulk: "cinnabar-bulk",
    lanes: "cinnabar-lanes",
    group: "cinnabar-group",
    http: "cinnabar-http",
    "inspect-package": "cinnabar-inspect",
    nest: "cinnabar-nest",
    nvme: "cinnabar-nvme",
    "queue-pairs": "cinnabar-nvme/queue-pairs",
    otel: "cinnabar-otel",
    serve: "cinnabar-serve",
  }).map(([entry, text]) => ({
    text,
    items: [
      { text: "All exports", link: `/api/${entry}/` },
      ...["functions", "classes"].flatMap((kind) =>
        pagesIn(`api/${entry}/${kind}`).map((name) => ({
          text: name,
          link: `/api/${entry}/${kind}/${name}`,
        })),
      ),
    ],
  }));
}

function pagesIn(folder) {
  try {
    return readdirSync(source + folder)
      .filter((name) => name.endsWith(".md"))
      .map((name) => name.slice(0, -3))
      .sort();
  } catch {
    return [];
  }
}
