import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { get } from "node:http";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { application, component, startApplication } from "cinnabar-serve";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import app from "../../examples/backend/app.ts";
import { Orders } from "../../examples/backend/contract.ts";
import { type OrdersHost, orders } from "../../examples/backend/orders.ts";
import { worker } from "../../examples/backend/worker.ts";
import { Engine } from "../../src/index.ts";
import { root } from "./pages.test-support.ts";

const folder = `${root}examples/backend/`;
let runs = 0;

/** The example over `mem://`, with HTTP at a port that is free. */
async function start(pieces = 100) {
  const at = (name: string) => `mem://backend-${name}-${++runs}`;
  const [one, two, orders] = [at("one"), at("two"), at("orders")];
  const started = await startApplication(app, {
    flags: [
      ["stockOne.listen", one],
      ["stockTwo.listen", two],
      ["stockOne.pieces", String(pieces)],
      ["stockTwo.pieces", String(pieces)],
      ["orders.listen", orders],
      ["orders.stock", JSON.stringify([one, two])],
      ["worker.orders", orders],
      ["web.port", "0"],
      ["web.page", `${folder}page.html`],
    ],
  });
  onTestFinished(async () => void (await started.stop(1_000)));
  const { port } = started.values.web as { port: number };
  return { started, orders, base: `http://127.0.0.1:${port}` };
}

const place = (base: string, order: unknown) =>
  fetch(`${base}/api/orders.v1/place`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(order),
  });

describe("the example of a back end", () => {
  it("takes an order by HTTP, which reaches a replica of the stock and a worker", async () => {
    const { base, started } = await start();
    const response = await place(base, { item: "lamp", pieces: 3 });
    expect([response.status, await response.json()]).toEqual([
      200,
      { id: 1, item: "lamp", pieces: 3, label: "#1 lamp, by printer" },
    ]);
    expect(await (await fetch(`${base}/metrics`)).text()).toContain(
      'shop_calls_succeeded_total{method="printers.v1/join"} 1',
    );
    expect((await fetch(`${base}/api/readyz`)).status).toBe(200);
    expect(await (await fetch(base)).text()).toContain("<h1>Orders</h1>");
    expect(await started.stop(1_000)).toEqual([]);
  });

  it("balances over both replicas, and says when both are sold out", async () => {
    const { orders } = await start(2);
    const engine = await Engine.open();
    onTestFinished(() => engine.close());
    const client = (await engine.connect(orders)).client(Orders);
    const take = () => client.place.result({ item: "lamp", pieces: 1 });
    // One replica may be connected before the other, and calls of one caller choose by chance.
    let taken = 0;
    for (let n = 0; n < 10_000 && taken < 4; n++) if ((await take()).ok) taken++;
    expect(taken).toBe(4);
    for (let n = 0; n < 8; n++)
      expect(await take()).toMatchObject({ ok: false, error: { reason: "SoldOut" } });
  });

  it("shows orders as they come, and ends the list when it closes", async () => {
    const { base, started } = await start();
    const listing = fetch(`${base}/api/orders.v1/watch`, { headers: { accept: "text/event-stream" } });
    await place(base, { item: "first", pieces: 1 });
    const list = await listing;
    expect(list.headers.get("content-type")).toContain("text/event-stream");
    const reader = list.body?.pipeThrough(new TextDecoderStream()).getReader();
    let read = "";
    const until = async (text: string) => {
      while (!read.includes(text)) {
        const { done, value } = (await reader?.read()) ?? { done: true };
        if (done) break;
        read += value;
      }
      expect(read).toContain(text);
    };
    await until('"item":"first"');
    await place(base, { item: "second", pieces: 1 });
    await until('"item":"second"');
    expect(await started.stop(5_000)).toEqual([]);
  });

  it("takes a picture as plain bytes", async () => {
    const { base } = await start();
    const response = await fetch(
      `${base}/api/orders.v1/picture?message=${encodeURIComponent('{"name":"a"}')}`,
      {
        method: "PUT",
        body: new Uint8Array(100_000),
      },
    );
    expect([response.status, await response.json()]).toEqual([200, { bytes: 100_000 }]);
  });

  it("gives the page the modules that it imports, and no other file", async () => {
    const { base } = await start();
    for (const name of ["contract.js", "zod/index.js"]) {
      const response = await fetch(`${base}/modules/${name}`);
      const type = response.headers.get("content-type");
      expect([name, response.status, type]).toEqual([name, 200, "text/javascript; charset=utf-8"]);
      expect(await response.text()).toMatch(/\bexport\b/);
    }
    const port = Number(new URL(base).port);
    const strange = ["zod/../../package.js", "zod/none.js", "none/index.js", "constructor/a.js", "zod/"];
    for (const name of strange) {
      const [response] = await once(get({ port, path: `/modules/${name}` }), "response");
      response.resume();
      expect([name, response.statusCode]).toEqual([name, 404]);
    }
  });

  it.each(["orders", "worker"] as const)("closes the engine of %s whose peer is not there", async (name) => {
    const listen = `mem://backend-fails-${++runs}`;
    const nowhere = `mem://backend-nowhere-${runs}`;
    const flags: Record<typeof name, [string, string][]> = {
      orders: [
        ["orders.listen", listen],
        ["orders.stock", JSON.stringify([nowhere])],
      ],
      worker: [["worker.orders", nowhere]],
    };
    const opened: Engine[] = [];
    const openEngine = Engine.open.bind(Engine);
    const open = vi.spyOn(Engine, "open").mockImplementation(async (options = {}) => {
      const { serve } = options;
      // An engine that fails to open is seen only while its services are made.
      if (typeof serve === "function")
        return openEngine({
          ...options,
          serve: (engine) => {
            opened.push(engine);
            return serve(engine);
          },
        });
      const engine = await openEngine(options);
      opened.push(engine);
      return engine;
    });
    onTestFinished(() => open.mockRestore());
    const parts = { orders: { orders }, worker: { worker } }[name];
    const starting = startApplication(application("shop", parts), { flags: flags[name] });
    await expect(starting).rejects.toThrow(nowhere);
    expect(opened.map(({ state }) => state)).toEqual(["closed"]);
  });

  it("takes no calls to the orders before their services are there", async () => {
    // A stock that accepts connections and says nothing: the orders start, and wait for it.
    const silent = createServer().listen(0, "127.0.0.1");
    onTestFinished(() => void silent.close());
    await once(silent, "listening");
    const listen = `mem://backend-orders-${++runs}`;
    const flags = [
      ["orders.listen", listen],
      ["orders.stock", `["net://127.0.0.1:${(silent.address() as AddressInfo).port}"]`],
    ] as const;
    const starting = startApplication(application("shop", { orders }), { flags });
    const failed = expect(starting).rejects.toThrow("orders could not start");
    const [socket] = (await once(silent, "connection")) as [Socket];
    const worker = await Engine.open();
    onTestFinished(() => worker.close());
    await expect(worker.connect(listen)).rejects.toMatchObject({ code: "unavailable" });
    silent.close();
    socket.destroy();
    await failed;
  });

  it("starts with a part exchanged", async () => {
    const host = component({ start: () => ({ value: { urls: [] } }) });
    const fake = application("shop", { host });
    expect((await startApplication(fake)).values.host as Partial<OrdersHost>).toEqual({ urls: [] });
  });
});

describe("the files beside the example", () => {
  const units = readdirSync(`${folder}systemd`);

  it.skipIf(spawnSync("systemd-analyze", ["--version"]).status !== 0)("are units that systemd takes", () => {
    const paths = units.map((unit) => `${folder}systemd/${unit.replace("@", "@7401")}`);
    const checked = spawnSync("systemd-analyze", ["verify", "--man=no", ...paths], { encoding: "utf8" });
    // The program and its user are not on this machine.
    const faults = checked.stderr.split("\n").filter((line) => /shop-\w+(@\w*)?\.service/.test(line));
    const expected = /is not executable|Failed to resolve|No such file|not found/;
    expect(faults.filter((line) => !expected.test(line))).toEqual([]);
  });

  it("name files, variables and ports that the program has", () => {
    const texts = ["compose.yaml", "kubernetes.yaml", ...units.map((unit) => `systemd/${unit}`)].map((file) =>
      readFileSync(folder + file, "utf8"),
    );
    const files = new Set(texts.flatMap((text) => text.match(/\b[a-z]+-app\.ts\b/g) ?? []));
    expect([...files].sort()).toEqual(["orders-app.ts", "stock-app.ts", "worker-app.ts"]);
    for (const file of files) expect(readdirSync(folder)).toContain(file);
    const variables = new Set(texts.flatMap((text) => text.match(/\bSHOP_[A-Z_]+/g) ?? []));
    const sources = Object.fromEntries(
      ["stock", "orders", "worker", "web"].map((name) => [name, readFileSync(`${folder}${name}.ts`, "utf8")]),
    );
    for (const variable of variables) {
      const [, component = "", field = ""] = variable.toLowerCase().split("_");
      expect([variable, sources[component]?.includes(`${field}: z.`)]).toEqual([variable, true]);
    }
  });
});
