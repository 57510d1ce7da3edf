import { existsSync, readdirSync, readFileSync } from "node:fs";
import { output } from "./paths.mjs";

const base = process.env.CINNABAR_SITE_BASE ?? "/";

/** Looks whether every link between pages of the site, with its anchor, leads to something. */
export function checkLinks() {
  const pages = readdirSync(output, { recursive: true, encoding: "utf8" }).filter((file) =>
    file.endsWith(".html"),
  );
  const texts = new Map(pages.map((file) => [file, readFileSync(output + file, "utf8")]));
  const anchors = new Map([...texts].map(([file, text]) => [file, anchorsOf(text)]));
  const broken = new Set();
  let links = 0;
  for (const [file, text] of texts) {
    for (const [, href] of text.matchAll(/\shref="([^"]*)"/g)) {
      const url = new URL(href.replaceAll("&amp;", "&"), `http://site${base}${file}`);
      if (url.host !== "site") continue;
      links++;
      const path = decodeURIComponent(url.pathname.slice(base.length));
      const target = path === "" || path.endsWith("/") ? `${path}index.html` : path;
      const anchor = decodeURIComponent(url.hash.slice(1));
      if (!existsSync(output + target)) broken.add(`${file}: ${href}`);
      else if (anchor !== "" && anchors.get(target)?.has(anchor) === false) broken.add(`${file}: ${href}`);
    }
  }
  return { pages: pages.length, links, broken: [...broken] };
}

function anchorsOf(text) {
  return new Set([...text.matchAll(/\sid="([^"]*)"/g)].map(([, id]) => id));
}
