// Uses the example of a back end in a browser, as its user does: directly and through nginx, the server restarted in
// between. Then a page calls the same services by `httpClient`. Ends with an error where the page shows something wrong
// or reports an error; with status 3 where no browser is installed. `--guide-images` also writes the pictures of the
// guide.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";
import { findProgram, root } from "./paths.mjs";

const patienceMs = 60_000;
const pictures = `${root}build/reports/site/`;
const guideImages = process.argv.includes("--guide-images") ? `${root}docs/images/back-end/` : undefined;
/** The pictures are in the repository. */
const mostPictureBytes = 60_000;
const problems = [];
const expect = (what, now, wanted) => {
  if (JSON.stringify(now) !== JSON.stringify(wanted))
    problems.push(`${what}: ${JSON.stringify(now)} instead of ${JSON.stringify(wanted)}`);
};

const browserFile = findProgram("chromium-headless-shell", "chromium", "google-chrome");
if (browserFile === undefined) process.exit(3);
// Debian installs it where only root looks.
const nginxFile = findProgram("nginx") ?? ["/usr/sbin/nginx"].find((file) => existsSync(file));

mkdirSync(pictures, { recursive: true });
const folder = mkdtempSync(join(tmpdir(), "shop-"));
// nginx that root has started works as another user.
chmodSync(folder, 0o755);
const port = await freePort();
const running = new Set();
let browser;
try {
  browser = await chromium.launch({ executablePath: browserFile, args: ["--no-sandbox"] });
  await useShop(`http://127.0.0.1:${port}`, "directly");
  if (nginxFile !== undefined) await useShop(`http://127.0.0.1:${await startNginx()}`, "through nginx");
  await callFromPage();
} finally {
  await browser?.close();
  for (const child of running) await stop(child);
  rmSync(folder, { recursive: true, force: true });
}
for (const problem of problems) console.error(problem);
if (problems.length > 0) process.exit(1);
console.log(
  `the back end works in a browser, ${nginxFile === undefined ? "" : "through nginx, "}and from a page by httpClient`,
);
if (nginxFile === undefined) console.log("NOT THROUGH NGINX: there is no nginx here");

/** Orders, the live list, an upload with progress, and a restart of the server under an open page. */
async function useShop(origin, way) {
  let shop = await startShop();
  const page = await openPage(`${origin}/`, way);
  const rows = page.locator("#orders li");
  await order(page, "lamp", 2);
  expect(`${way}: the answer`, await page.locator("#answer").textContent(), "order 1");
  await rows.first().waitFor();
  expect(`${way}: the list`, await rows.allTextContents(), ["2 × lamp (#1 lamp, by printer)"]);

  // Another reader sees the order that there is, and the next one as it comes.
  const other = await openPage(`${origin}/`, way);
  await other.locator("#orders li").first().waitFor();
  await order(page, "chair", 1);
  await other.locator("#orders li").nth(1).waitFor();
  await rows.nth(1).waitFor();
  await takePicture(page, way, "orders.png");

  // Sold out: a declared error, with a text that the page shows.
  await page.evaluate(() => document.getElementById("answer").replaceChildren());
  page.expectsErrors = true;
  await order(page, "lamp", 1000);
  page.expectsErrors = false;
  const refusal = await page.locator("#answer").textContent();
  if (/order/.test(refusal) || refusal === "")
    problems.push(`${way}: 1000 lamps are answered by "${refusal}"`);

  const picture = join(folder, "picture.bin");
  writeFileSync(picture, Buffer.alloc(900_000, 7));
  await page.locator("#file").setInputFiles(picture);
  await page.locator("#sent", { hasText: /./ }).waitFor();
  expect(`${way}: the upload`, await page.locator("#sent").textContent(), "900000 bytes");
  expect(`${way}: its progress`, await page.locator("#progress").evaluate(({ value }) => value), 1);
  await takePicture(page, way, "refusal-and-upload.png");

  // The page lives through a restart: its list begins anew, by itself.
  for (const each of [page, other]) each.expectsErrors = true;
  await stop(shop);
  shop = await startShop();
  await page.waitForFunction(() => document.querySelectorAll("#orders li").length === 0);
  for (const each of [page, other]) each.expectsErrors = false;
  await order(other, "table", 4);
  await rows.first().waitFor();
  expect(`${way}: the list after a restart`, await rows.allTextContents(), [
    "4 × table (#1 table, by printer)",
  ]);
  await page.context().close();
  await other.context().close();
  await stop(shop);
}

async function takePicture(page, way, name) {
  const picture = await page.screenshot();
  writeFileSync(`${pictures}shop-${way.replaceAll(" ", "-")}-${name}`, picture);
  if (guideImages === undefined || way !== "directly") return;
  if (picture.length > mostPictureBytes) problems.push(`${name} has ${picture.length} bytes`);
  mkdirSync(guideImages, { recursive: true });
  writeFileSync(guideImages + name, picture);
}

/**
 * The client of cinnabar-http, as modules that the browser loads: unary, an error, a stream and its end by `break`, and
 * uploads: with progress, refused, ended by their signal, and from a worker, which has no progress of its own.
 */
async function callFromPage() {
  const shop = await startShop();
  const origin = `http://127.0.0.1:${port}`;
  const modules = {
    "cinnabar/contract": "/modules/dist/contract.js",
    "cinnabar/contract/standard": "/modules/dist/contract/standard.js",
    "cinnabar-http/client": "/modules/packages/http/dist/client.js",
    "cinnabar-http/client/upload": "/modules/packages/http/dist/upload.js",
    "orders/contract": "/modules/build/examples/backend/contract.js",
    zod: "/modules/node_modules/zod/index.js",
  };
  const html = `<!doctype html><title>client</title><link rel="icon" href="data:,"><script type="importmap">
    ${JSON.stringify({ imports: modules })}</script>`;
  const page = await openPage(undefined, "by httpClient");
  await page.route(`${origin}/client`, (route) => route.fulfill({ contentType: "text/html", body: html }));
  await page.route(`${origin}/modules/**`, (route) =>
    route.fulfill({ path: join(root, new URL(route.request().url()).pathname.slice("/modules/".length)) }),
  );
  await page.goto(`${origin}/client`);
  page.expectsErrors = true;
  const seen = await page.evaluate(async () => {
    const { httpClient } = await import("cinnabar-http/client");
    const { Orders } = await import("orders/contract");
    const client = httpClient(Orders, { url: `${location.origin}/api` });
    const seen = [];
    seen.push((await client.place({ item: "lamp", pieces: 1 })).label);
    const soldOut = await client.place({ item: "lamp", pieces: 1000 }).catch((error) => error);
    seen.push([soldOut.code, soldOut.reason, typeof soldOut.data?.left]);
    const refused = await client.place({ item: "", pieces: 1 }).catch((error) => error);
    seen.push(refused.code);
    for await (const { item } of client.watch()) {
      seen.push(item);
      break;
    }
    const late = await client
      .place({ item: "chair", pieces: 1 }, { signal: AbortSignal.abort() })
      .catch((error) => error);
    seen.push(late.code);
    return seen;
  });
  // Slow enough that a page sees an upload grow.
  const network = { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput: 20_000_000 };
  await (await page.context().newCDPSession(page)).send("Network.emulateNetworkConditions", network);
  const uploads = await page.evaluate(async () => {
    const { httpUpload } = await import("cinnabar-http/client/upload");
    const { Orders } = await import("orders/contract");
    const send = httpUpload(Orders, { method: "picture", body: "data" }, { url: `${location.origin}/api` });
    const seen = [];
    const bytes = new Uint8Array(12_000_000).fill(7);
    for (const body of [bytes, new Blob([bytes]), new File([bytes], "a")]) {
      const progress = [];
      const answer = await send({ name: "a" }, body, { onProgress: (...sent) => progress.push(sent) });
      const isRising = progress.every(([sent], at) => at === 0 || sent > progress[at - 1][0]);
      seen.push([answer.bytes, isRising && progress.length > 1, progress.at(-1)]);
    }
    const tooLong = await send({ name: "a".repeat(65) }, bytes).catch((error) => error);
    seen.push([tooLong.code, tooLong.notExecuted]);
    const stop = new AbortController();
    const onProgress = () => stop.abort();
    const stopped = await send({ name: "a" }, bytes, { signal: stop.signal, onProgress }).catch(
      (error) => error,
    );
    seen.push(stopped.code);
    const late = await send({ name: "a" }, bytes, { timeoutMs: 1 }).catch((error) => error);
    seen.push(late.code);
    const fault = new Error("no bar");
    const failing = () => {
      throw fault;
    };
    seen.push((await send({ name: "a" }, bytes, { onProgress: failing }).catch((error) => error)) === fault);
    // Where there is no XMLHttpRequest, as in a service worker.
    globalThis.XMLHttpRequest = undefined;
    const progress = [];
    await send({ name: "a" }, bytes, { onProgress: (...sent) => progress.push(sent) });
    seen.push(progress);
    return seen;
  });
  const whole = [12_000_000, 12_000_000];
  expect("by httpUpload", uploads, [
    ...[0, 1, 2].map(() => [12_000_000, true, whole]),
    ["invalid_argument", true],
    "cancelled",
    "deadline_exceeded",
    true,
    [whole],
  ]);
  expect("by httpClient", seen, [
    "#1 lamp, by printer",
    ["failed_precondition", "SoldOut", "number"],
    "invalid_argument",
    "lamp",
    "cancelled",
  ]);
  await page.context().close();
  await stop(shop);
}

async function order(page, item, pieces) {
  await page.locator("#order [name=item]").fill(item);
  await page.locator("#order [name=pieces]").fill(String(pieces));
  const answered = page.waitForResponse((response) => response.url().endsWith("/place"));
  await page.locator("#order button").click();
  await (await answered).finished();
  await page.locator("#answer", { hasText: /./ }).waitFor();
}

/** A page in a context of its own. What it reports as an error is a problem, unless the errors are expected. */
async function openPage(url, way) {
  const context = await browser.newContext({ viewport: { width: 640, height: 260 } });
  context.setDefaultTimeout(patienceMs);
  const page = await context.newPage();
  page.expectsErrors = false;
  page.on("pageerror", (error) => problems.push(`${way}: ${error}`));
  page.on("console", (message) => {
    if (message.type() === "error" && !page.expectsErrors) problems.push(`${way}: ${message.text()}`);
  });
  if (url !== undefined) await page.goto(url);
  return page;
}

/** The whole example in one process, its parts over `mem://`. */
async function startShop() {
  const env = {
    ...process.env,
    SHOP_STOCK_ONE_LISTEN: "mem://stock-one",
    SHOP_STOCK_TWO_LISTEN: "mem://stock-two",
    SHOP_ORDERS_LISTEN: "mem://orders",
    SHOP_ORDERS_STOCK: JSON.stringify(["mem://stock-one", "mem://stock-two"]),
    SHOP_WORKER_ORDERS: "mem://orders",
    SHOP_WEB_PORT: String(port),
    SHOP_WEB_PAGE: `${root}examples/backend/page.html`,
  };
  const child = start(process.execPath, [`${root}build/examples/backend/main.js`], env);
  for await (const line of createInterface({ input: child.stdout }))
    if (line.endsWith("is ready")) return child;
  throw new Error("the example ended before it was ready");
}

async function startNginx() {
  const own = await freePort();
  const config = join(folder, "nginx.conf");
  writeFileSync(
    config,
    `daemon off; pid ${folder}/nginx.pid; error_log ${folder}/error.log;
     events {}
     http {
       access_log off; client_body_temp_path ${folder}/body; proxy_temp_path ${folder}/proxy;
       fastcgi_temp_path ${folder}/fastcgi; uwsgi_temp_path ${folder}/uwsgi; scgi_temp_path ${folder}/scgi;
       server {
         listen 127.0.0.1:${own};
         client_max_body_size 16m;
         location / { proxy_pass http://127.0.0.1:${port}; proxy_http_version 1.1; }
       }
     }`,
  );
  start(nginxFile, ["-c", config, "-p", folder], process.env);
  const end = performance.now() + patienceMs;
  while (performance.now() < end && !existsSync(join(folder, "nginx.pid")))
    await new Promise((resolve) => setTimeout(resolve, 20));
  return own;
}

function start(file, args, env) {
  const child = spawn(file, args, { env, stdio: ["ignore", "pipe", "inherit"] });
  running.add(child);
  return child;
}

async function stop(child) {
  if (!running.delete(child) || child.exitCode !== null) return;
  const ended = once(child, "exit");
  child.kill("SIGTERM");
  child.stdout.resume();
  const [status] = await ended;
  if (status !== 0) problems.push(`${child.spawnargs.at(-1)} ended with status ${status}`);
}

async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}
