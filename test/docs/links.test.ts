import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import { linksOf, proseOf } from "./links.test-support.ts";
import { root, userPages } from "./pages.test-support.ts";

const files = execFileSync("git", ["ls-files", "--cached", "--others", "--exclude-standard"], {
  cwd: root,
  encoding: "utf8",
})
  .split("\n")
  .filter((file) => file !== "" && !file.includes(".tmp-") && existsSync(root + file));
const pages = files.filter((file) => file.endsWith(".md"));

/** The anchors that GitHub gives to a page's headings. */
function anchorsOf(page: string): Set<string> {
  const anchors = new Set<string>();
  for (const line of proseOf(root, page)) {
    const heading = /^#+ (.*)/.exec(line)?.[1];
    if (heading === undefined) continue;
    const slug = heading
      .toLowerCase()
      .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1")
      .replaceAll(/[^\p{L}\p{N} _-]/gu, "")
      .replaceAll(" ", "-");
    let own = slug;
    for (let i = 1; anchors.has(own); i++) own = `${slug}-${i}`;
    anchors.add(own);
  }
  return anchors;
}

/** Whether `target`, as `from` writes it, is `page` or a heading of it. */
function leadsTo(from: string, target: string, page: string): boolean {
  return join(dirname(from), target.split("#")[0] ?? "") === page;
}

describe("links between documents", () => {
  for (const page of pages) {
    it(`of ${page} lead to files and headings that exist`, () => {
      const broken = linksOf(root, page).filter((target) => {
        const [path = "", anchor] = target.split("#");
        const file = path === "" ? page : join(dirname(page), path);
        if (!existsSync(root + file)) return true;
        return anchor !== undefined && !anchorsOf(file).has(anchor);
      });
      expect(broken).toEqual([]);
    });
  }

  it("in sources name documents that exist", () => {
    const sources = files.filter((file) => /\.(ts|mjs|js|cc|h|txt|json)$/.test(file));
    const broken = sources.flatMap((file) =>
      [...readFileSync(root + file, "utf8").matchAll(/\bdocs\/(?:guide|design|results)\/[\w-]+\.md/g)]
        .map(([document]) => document)
        .filter((document) => !existsSync(root + document))
        .map((document) => `${file}: ${document}`),
    );
    expect(broken).toEqual([]);
  });
});

describe("paths of sources that documents name", () => {
  const rooms = /`((?:bench|examples|native|packages|scripts|site|src|test)\/[\w./-]+)`/g;
  /** Made by a command, or a pattern for names. */
  const isMade = (path: string) => /^native\/build|\/(build|dist|node_modules)\/|NAME|\bmine\./.test(path);
  // What was done at a time has the names of that time.
  const current = pages.filter((page) => !/^CHANGELOG|^docs\/results\//.test(page));
  const named = current.flatMap((page) =>
    [...readFileSync(root + page, "utf8").matchAll(rooms)].map(([, path = ""]) => ({ page, path })),
  );

  it("exist, with or without the end of their name", () => {
    const tests = ["apart", "device", "process"].map((suffix) => `.${suffix}.test.ts`);
    const ends = ["", ".ts", ".mjs", ".test.ts", ...tests];
    const broken = named
      .filter(({ path }) => !isMade(path) && !ends.some((end) => existsSync(root + path + end)))
      .map(({ page, path }) => `${page}: ${path}`);
    expect(broken).toEqual([]);
    expect(named.length).toBeGreaterThan(100);
  });

  it("exist where a page leaves the first folders out", () => {
    const short = /`([\w-]+(?:\/[\w.-]+)+\.(?:ts|mjs|cc|h))`/g;
    const broken = current.flatMap((page) =>
      [...readFileSync(root + page, "utf8").matchAll(short)]
        .map(([, path = ""]) => path)
        .filter((path) => !isMade(path) && !files.some((file) => `/${file}`.endsWith(`/${path}`)))
        .map((path) => `${page}: ${path}`),
    );
    expect(broken).toEqual([]);
  });
});

describe("the pages of results", () => {
  for (const page of pages.filter((file) => dirname(file) === "docs/results")) {
    it(`have a link from another page: ${page}`, () => {
      const from = pages.filter(
        (other) => other !== page && linksOf(root, other).some((target) => leadsTo(other, target, page)),
      );
      expect(from).not.toEqual([]);
    });
  }
});

describe("the lists of pages", () => {
  it.each(["docs/guide", "docs/design"])("of %s name every page once", (folder) => {
    const list = readFileSync(`${root}${folder}/index.md`, "utf8");
    const named = [...list.matchAll(/\]\(([\w-]+\.md)\)/g)].map(([, page]) => page);
    const own = pages.filter((page) => dirname(page) === folder).map((page) => page.slice(folder.length + 1));
    expect(named.sort()).toEqual(own.filter((page) => page !== "index.md").sort());
  });
});

describe("diagnostics channels", () => {
  const namesIn = (paths: readonly string[]) => {
    const texts = paths.map((path) => readFileSync(root + path, "utf8")).join("\n");
    return [...new Set(texts.match(/\bcinnabar:[a-z]+(?:\.[a-zA-Z-]+)?/g))].sort();
  };
  const published = namesIn(["src/base/observe/channels.ts", "packages/group/src/group/events.ts"]);

  it("that the guide names are those that the source publishes on", () => {
    expect(namesIn(userPages)).toEqual(published);
  });

  it("that design pages name are some of those", () => {
    const named = namesIn(pages.filter((page) => dirname(page) === "docs/design"));
    expect(named.filter((name) => !published.includes(name) && name !== "cinnabar:source")).toEqual([]);
    expect(named.length).toBeGreaterThan(1);
  });
});

describe("the prose that users read", () => {
  for (const page of [...userPages, "CHANGELOG.md"]) {
    it(`of ${page} is wrapped at 120 columns, tables apart`, () => {
      const long = proseOf(root, page).filter((line) => line.length > 120 && !line.startsWith("|"));
      expect(long).toEqual([]);
    });
  }

  it.each(userPages.filter((page) => page !== "README.md"))("of %s begins with who needs it", (page) => {
    const [, first = ""] = readFileSync(root + page, "utf8").split("\n\n");
    expect(first).toMatch(/^(For (everybody|those|members)|Read (this page|the section))\b/);
  });

  it("of README.md has 150 lines at most", () => {
    expect(readFileSync(`${root}README.md`, "utf8").trimEnd().split("\n").length).toBeLessThanOrEqual(150);
  });
});
