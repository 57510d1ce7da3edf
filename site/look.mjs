// Looks at the site in a browser without a screen, as a reader with a phone and one with a desk does. Ends with an error
// where a page does not render, reports an error, or asks another host for something; where any page is wider than the
// screen, has code or a table that is cut, or breaks a short name, on a phone or on a laptop; where a laptop shows no
// outline; where search does not find; and where a diagram is not drawn. Pictures go to build/reports/site.
import { once } from "node:events";
import { mkdirSync, readdirSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join } from "node:path";
import { chromium } from "playwright-core";
import { findProgram, output, root } from "./paths.mjs";

const screens = {
  phone: { width: 390, height: 844 },
  laptop: { width: 1280, height: 800 },
  desk: { width: 1440, height: 900 },
};
const pages = [
  "index.html",
  "about.html",
  "docs/guide/index.html",
  "docs/guide/install.html",
  "docs/guide/first-service.html",
  "docs/guide/bulk.html",
  "docs/guide/troubleshooting.html",
  "docs/guide/troubleshooting/overload-and-limits.html",
  "docs/guide/limits.html",
  "docs/guide/deploy.html",
  "docs/guide/load-balancing.html",
  "docs/guide/coming-from.html",
  "docs/architecture.html",
  "docs/protocol.html",
  "api/index.html",
  "api/index/classes/Engine.html",
  "api/options/interfaces/EngineLimits.html",
  "api/group/index.html",
  "examples/index.html",
];
/** A page takes a second to come to life, on a machine that compiles beside it over half a minute. */
const patienceMs = 180_000;
const pictures = `${root}build/reports/site/`;
const problems = [];

const browserFile = findProgram("chromium-headless-shell", "chromium", "google-chrome");
if (browserFile === undefined) {
  console.error(
    "NO LOOK AT THE SITE: there is no chromium here; apt-get install chromium-headless-shell brings one",
  );
  process.exit(3);
}
mkdirSync(pictures, { recursive: true });
const server = await serve();
const origin = `http://127.0.0.1:${server.address().port}`;
const browser = await chromium.launch({ executablePath: browserFile, args: ["--no-sandbox"] });
try {
  for (const viewport of [screens.phone, screens.laptop]) await lookForCuts(viewport);
  for (const [screen, viewport] of Object.entries(screens)) {
    for (const colorScheme of ["light", "dark"]) {
      const context = await browser.newContext({ viewport, colorScheme });
      await context.route("**", (route) =>
        route.request().url().startsWith(origin) ? route.continue() : route.abort(),
      );
      context.setDefaultTimeout(patienceMs);
      const page = await context.newPage();
      const where = () => `${screen}, ${colorScheme}, ${page.url().slice(origin.length)}`;
      const note = (what) => problems.push(`${where()}: ${what}`);
      page.on("pageerror", (error) => note(String(error)));
      page.on("console", (message) => message.type() === "error" && note(message.text()));
      page.on("request", (request) => request.url().startsWith(origin) || note(`asks for ${request.url()}`));
      const those =
        colorScheme === "light"
          ? pages
          : pages.filter((path) => /index|bulk|architecture|first-service/.test(path));
      for (const path of those) await lookAt(page, path, { note, name: `${screen}-${colorScheme}` });
      await searchFor(page, "has been silent for heartbeatMs", "has been silent for … ms", note);
      await searchFor(page, "maxBodyBytes", "Limits", note);
      await page.screenshot({ path: `${pictures}${screen}-${colorScheme}-search.png` });
      await context.close();
    }
  }
} finally {
  await browser.close();
  server.close();
}
for (const problem of problems) console.error(problem);
if (problems.length > 0) process.exit(1);
console.log(
  `${pages.length} pages look well on a phone and on a desk, light and dark; pictures in ${pictures}`,
);

async function lookAt(page, path, { note, name }) {
  const response = await page.goto(`${origin}/${path}`, { waitUntil: "load" });
  if (!response?.ok()) return note(`cannot be had: status ${response?.status()}`);
  await hydrated(page);
  const heading = await page.locator(".vp-doc h1").first().textContent();
  if ((heading ?? "").trim() === "") note("has no heading");
  const { scroll, own } = await page.evaluate(() => ({
    scroll: document.documentElement.scrollWidth,
    own: document.documentElement.clientWidth,
  }));
  if (scroll > own) note(`is ${scroll} pixels wide on a screen of ${own}`);
  const outline = page.locator(".VPDocAsideOutline .outline-link").first();
  if (own >= 1280 && /^docs\/guide\/(bulk|install|deploy)/.test(path) && !(await outline.isVisible()))
    note("has no outline at the right");
  if (
    path === "docs/guide/first-service.html" &&
    (await page.locator(".vp-code-group .tabs label").count()) < 3
  )
    note("has no tabs for the files of its program");
  if (path === "index.html" && (await page.locator(".numbers .card").count()) !== 3)
    note("has not three numbers");
  const diagrams = page.locator(".diagram");
  const count = await diagrams.count();
  for (let i = 0; i < count; i++) {
    await diagrams
      .nth(i)
      .locator("svg")
      .waitFor()
      .catch(() => note(`diagram ${i} is not drawn`));
  }
  if (path === "docs/architecture.html" && count === 0) note("has no diagram");
  await page.screenshot({ path: `${pictures}${name}-${path.replaceAll("/", "-").replace(".html", "")}.png` });
}

/**
 * On every written page: what is wider than the screen or than its box cannot be read without scrolling. Without scripts
 * a page looks the same, and is there at once.
 */
async function lookForCuts(viewport) {
  const context = await browser.newContext({ viewport, javaScriptEnabled: false });
  context.setDefaultTimeout(patienceMs);
  const page = await context.newPage();
  let seen = 0;
  for (const path of writtenPages()) {
    await page.goto(`${origin}/${path}`, { waitUntil: "load" });
    const { count, cuts } = await page.evaluate(() => {
      const boxes = [...document.querySelectorAll(".vp-doc [class*='language-'] pre, .vp-doc table")];
      const isCut = (box) => box.scrollWidth > box.clientWidth && box.clientWidth > 0;
      const { scrollWidth, clientWidth } = document.documentElement;
      const wide = scrollWidth > clientWidth ? [`the page is ${scrollWidth} pixels wide`] : [];
      const cut = boxes
        .filter(isCut)
        .map((box) => `${box.tagName} is cut: ${box.textContent.trim().slice(0, 60)}`);
      const isBroken = (name) => /^\w+$/.test(name.textContent) && name.getClientRects().length > 1;
      const broken = [...document.querySelectorAll(".vp-doc .names > code")]
        .filter(isBroken)
        .map((name) => `${name.textContent} is broken`);
      return { count: boxes.length, cuts: [...wide, ...cut, ...broken] };
    });
    seen += count;
    for (const cut of cuts) problems.push(`${viewport.width} pixels, ${path}: ${cut}`);
  }
  if (seen === 0) problems.push("no page has code");
  console.log(`${seen} blocks of code and tables on ${viewport.width} pixels`);
  await context.close();
}

/** All pages but those that TypeDoc makes by the hundred, of which the list above has some. */
function writtenPages() {
  const files = readdirSync(output, { recursive: true, encoding: "utf8" });
  return [...files.filter((file) => /^(?!api\/).*\.html$/.test(file)), ...pages];
}

/** The page is text at first; then its program has taken it over, and its buttons work. */
async function hydrated(page) {
  await page.waitForFunction(() => document.querySelector("#app")?.__vue_app__ !== undefined);
}

async function searchFor(page, words, expected, note) {
  await page.goto(`${origin}/docs/guide/index.html`, { waitUntil: "load" });
  await hydrated(page);
  await page.locator(".DocSearch-Button, .VPNavBarSearch button").first().click();
  await page.locator(".VPLocalSearchBox input").fill(words);
  await page
    .locator(".VPLocalSearchBox .result", { hasText: expected })
    .first()
    .waitFor()
    .catch(() => note(`search for "${words}" does not find ${expected}`));
}

async function serve() {
  const types = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
  };
  const server = createServer(async (request, response) => {
    const path = decodeURIComponent(new URL(request.url ?? "/", "http://site").pathname);
    try {
      const body = await readFile(join(output, path.endsWith("/") ? `${path}index.html` : path));
      response
        .writeHead(200, { "content-type": types[extname(path)] ?? "application/octet-stream" })
        .end(body);
    } catch {
      response.writeHead(path === "/favicon.ico" ? 204 : 404).end();
    }
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return server;
}
