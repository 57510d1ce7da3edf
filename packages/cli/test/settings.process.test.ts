import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Engine, type EngineOptions, implement, RpcError, service, unary } from "cinnabar";
import { inspection, reflection } from "cinnabar-inspect";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { benchServer, Injector } from "../src/bench/server.ts";
import { cinnabar, start } from "./support/command-line.ts";
import { endAll, ends, open, track, Work } from "./support/watched-server.ts";

// Real processes against engines of this process, which have a certificate each.

const patient = ["--timeout", "1m"];
let folder: string;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "cinnabar-settings-"));
  const keys = (...args: string[]) => cinnabar(["keys", ...args], { cwd: folder });
  await keys("init");
  await keys("issue", "one", "--dns", "one.example");
  await keys("issue", "two", "--dns", "two.example");
  await keys("issue", "operator", "--uri", "spiffe://example/operator");
  await keys("psk", "pair");
});

afterEach(endAll);

afterAll(() => rmSync(folder, { recursive: true }));

const file = (name: string) => readFileSync(join(folder, "cinnabar-keys", name));

function securityOf(name: string): NonNullable<EngineOptions["security"]> {
  return { tls: { cert: file(`${name}.pem`), key: file(`${name}.key`), ca: file("ca.pem") } };
}

/** An engine with its own certificate. Its work waits until the test ends. */
async function serve(name: string, options: EngineOptions = {}) {
  let release = () => {};
  const gate = new Promise<void>((resolve) => {
    release = resolve;
  });
  const work = implement(Work, {
    ping: (text) => text,
    hold: async () => {
      await gate;
      return "done";
    },
    slow() {},
    fail() {},
    async *count() {},
  });
  const engine = await open({
    listen: "net://127.0.0.1:0",
    serve: (opening) => [work, inspection(opening), reflection(opening)],
    security: securityOf(name),
    ...options,
  });
  ends.push(release);
  return { engine, url: engine.urls[0] as string };
}

/** A call of `hold` from one engine to the other, which is open at both. */
async function heldCall() {
  const caller = await serve("one");
  const server = await serve("two");
  const peer = await caller.engine.connect(server.url, { name: "two.example" });
  const held = peer.client(Work).hold({ timeoutMs: 60_000 });
  held.catch(() => {});
  while (server.engine.calls().length === 0) await new Promise(setImmediate);
  return { caller, server };
}

const run = (args: readonly string[], env: NodeJS.ProcessEnv = {}) => cinnabar(args, { cwd: folder, env });
const cert = ["--cert", "cinnabar-keys/operator.pem"];
const names = ["--name", "one.example", "--name", "two.example"];

describe("a name for each URL", { timeout: 120_000 }, () => {
  it("lets why and top see both ends, where each service has its certificate", async () => {
    const { caller, server } = await heldCall();
    const both = [caller.url, server.url, ...cert, ...names, ...patient];
    const why = await run(["why", ...both, "--json"]);
    expect(why).toMatchObject({ status: 0, stderr: "" });
    expect(JSON.parse(why.stdout).calls).toMatchObject([
      { method: "work.v1/hold", caller: { url: caller.url }, server: { url: server.url } },
    ]);
    const top = await run(["top", ...both, "--once", "--every", "100ms", "--json"]);
    expect(top).toMatchObject({ status: 0, stderr: "" });
    expect(JSON.parse(top.stdout).engines).toMatchObject([{ state: "serving" }, { state: "serving" }]);
  });

  it("is in the order of the URLs: the certificate of another server is refused", async () => {
    const { caller, server } = await heldCall();
    const { status, stderr } = await run(["why", server.url, caller.url, ...cert, ...names, ...patient]);
    expect(status).toBe(80);
    expect(stderr).toContain("does not prove the name one.example; it has DNS:two.example");
    expect(stderr).toContain("give a name that it proves by --name");
  });

  it("is given once, or once for each URL", async () => {
    const { caller, server } = await heldCall();
    const urls = [caller.url, server.url, "net://127.0.0.1:1"];
    const fewer = await run(["why", ...urls, ...cert, ...names, ...patient]);
    expect(fewer).toMatchObject({ status: 2, stdout: "" });
    expect(fewer.stderr).toContain("there are 2 names for 3 servers: give --name once, or once for each");
    const bench = ["bench", server.url, ...cert, "--name", "two.example", "--method", "work.v1/ping"];
    const loaded = await run([...bench, "--input", '"a"', "--duration", "100ms", "--warmup", "1ms"]);
    expect(loaded).toMatchObject({ status: 0, stderr: "" });
  });
});

describe("variables of the environment", { timeout: 120_000 }, () => {
  const own = { CINNABAR_CERT: "cinnabar-keys/operator.pem", CINNABAR_TIMEOUT: "1m" };

  it("are the settings of a connection, so that a command needs none", async () => {
    const { caller, server } = await heldCall();
    const env = { ...own, CINNABAR_NAME: "one.example,two.example" };
    const { status, stdout, stderr } = await run(["why", caller.url, server.url], env);
    expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
    expect(stdout).toContain(`  server ${server.url}`);
    const line = `cinnabar call ${server.url} work.v1/pi`;
    const found = await run(["completion", "--line", line], { ...own, CINNABAR_NAME: "two.example" });
    expect(found.stdout).toBe("work.v1/ping\n");
  });

  it("give way to options, and those of a certificate to --psk", async () => {
    const psk = { lookup: (identity: string) => (identity === "pair" ? file("pair.psk") : undefined) };
    const { url } = await serve("one", { security: { psk } });
    const named = { ...own, CINNABAR_NAME: "two.example", CINNABAR_KEY: "cinnabar-keys/operator.key" };
    const keyed = ["list", url, "--psk", "cinnabar-keys/pair.psk"];
    expect(await run(keyed, named)).toMatchObject({ status: 0, stderr: "" });
    const byVariable = { CINNABAR_PSK: "cinnabar-keys/pair.psk", CINNABAR_TIMEOUT: "1m", CINNABAR_CERT: "" };
    expect(await run(["list", url], byVariable)).toMatchObject({ status: 0, stderr: "" });
    const two = await serve("two");
    const certified = ["list", two.url, "--name", "two.example", ...cert];
    expect(await run(certified, { ...byVariable, CINNABAR_NAME: "one.example" })).toMatchObject({
      ...{ status: 0, stderr: "" },
    });
  });

  it("give names by their order, as many as there are servers", async () => {
    const { status, stderr } = await run(["ping", "net://127.0.0.1:1"], { ...own, CINNABAR_NAME: "a,b" });
    expect(status).toBe(2);
    expect(stderr).toContain("there are 2 names for 1 servers: give --name once, or once for each");
  });

  it.each([
    [{ CINNABAR_TIMEOUT: "5" }, "CINNABAR_TIMEOUT must be a time such as 500ms, 2s or 1m"],
    [{ CINNABAR_KEY: "a.key" }, "CINNABAR_KEY belongs to a certificate: give --cert as well"],
    [{ CINNABAR_IDENTITY: "me" }, "CINNABAR_IDENTITY is the name of a shared key: give --psk as well"],
    [
      { CINNABAR_PSK: "a.psk", CINNABAR_CERT: "a.pem" },
      "CINNABAR_PSK and CINNABAR_CERT exclude each other: give one of them",
    ],
  ])("are named where they are wrong: %j", async (env, complaint) => {
    const { status, stdout, stderr } = await run(["ping", "net://127.0.0.1:1"], env);
    expect({ status, stdout }).toEqual({ status: 2, stdout: "" });
    expect(stderr).toMatch(/^cinnabar ping: [^\n]+\n$/);
    expect(stderr).toContain(complaint);
  });

  it("name a file that is not there", async () => {
    const { status, stderr } = await run(["ping", "net://127.0.0.1:1"], { CINNABAR_CERT: "none.pem" });
    expect({ status, stderr }).toEqual({
      status: 1,
      stderr: "cinnabar ping: CINNABAR_CERT: there is no file none.pem\n",
    });
  });
});

describe("the hint to give a certificate", { timeout: 120_000 }, () => {
  const hint = "give --cert, --key and --ca, or --psk, as the server asks";

  it("stands where nothing was given, and nowhere else", async () => {
    const { url } = await serve("one");
    expect((await run(["list", url, ...patient])).stderr).toContain(hint);
    const strange = await run(["list", url, "--psk", "cinnabar-keys/pair.psk", ...patient]);
    expect(strange.status).toBe(80);
    expect(strange.stderr).not.toContain("give --cert");
    const plain = await Engine.open({ listen: "net://127.0.0.1:0" });
    ends.push(() => plain.close());
    const open = await run(["list", plain.urls[0] as string, ...cert, ...patient]);
    expect(open.status).toBe(80);
    expect(open.stderr).not.toContain("give --cert");
  });

  it.each([
    ["unauthenticated", 80],
    ["permission_denied", 71],
  ] as const)("is no answer to a handler's own %s", async (code, status) => {
    const Door = service("door.v1", { open: unary() });
    const door = implement(Door, {
      open() {
        throw new RpcError({ code, message: "show a token" });
      },
    });
    const { urls } = await open({
      listen: "net://127.0.0.1:0",
      serve: (opening) => [door, reflection(opening)],
    });
    const called = await run(["call", urls[0] as string, "door.v1/open", ...patient]);
    expect(called.status).toBe(status);
    expect(called.stderr).toMatch(/^cinnabar call: door\.v1\/open: [^\n]*show a token\n$/);
  });
});

describe("cinnabar bench --metadata", { timeout: 120_000 }, () => {
  it("sends it with each call", async () => {
    const tenants: (string | undefined)[] = [];
    const Tenants = service("tenants.v1", { see: unary({ idempotent: true }) });
    const see = implement(Tenants, {
      see(_, { metadata }) {
        tenants.push(metadata.get("x-tenant")?.toString());
      },
    });
    const { urls } = await open({ listen: "net://127.0.0.1:0", serve: (each) => [see, reflection(each)] });
    const short = ["--duration", "200ms", "--warmup", "1ms", ...patient];
    const args = ["bench", urls[0] as string, "--method", "tenants.v1/see", ...short];
    const loaded = await run([...args, "--metadata", "x-tenant=acme"]);
    expect(loaded).toMatchObject({ status: 0, stderr: "" });
    expect(tenants.length).toBeGreaterThan(0);
    expect(new Set(tenants)).toEqual(new Set(["acme"]));
    const wrong = await run([...args, "--metadata", "acme"]);
    expect(wrong).toMatchObject({ status: 2, stdout: "" });
    expect(wrong.stderr).toContain('--metadata must be NAME=VALUE, it is "acme"');
  });

  it.each(["both", "input", "output", "from", "into"])("sends it to bench serve: %s", async (way) => {
    const tenants = new Set<string | undefined>();
    const { urls } = await open({
      listen: "net://127.0.0.1:0",
      serve: ({ pool }) => {
        const injector = new Injector({ delayMs: undefined, failShare: 0, random: Math.random });
        return [benchServer(injector, pool)];
      },
      middleware: {
        server: [
          (call, next) => {
            if (!call.method.endsWith("/cpu")) tenants.add(call.metadata.get("x-tenant")?.toString());
            return next();
          },
        ],
      },
    });
    const option = way === "from" || way === "into" ? "--bulk" : "--inline";
    const short = ["--duration", "200ms", "--warmup", "1ms", ...patient];
    const args = ["bench", urls[0] as string, option, way, "--metadata", "x-tenant=acme", ...short];
    expect(await run(args)).toMatchObject({ status: 0, stderr: "" });
    expect(tenants).toEqual(new Set(["acme"]));
  });
});

describe("cinnabar tail of several engines", { timeout: 120_000 }, () => {
  it("prints calls of all, with their URLs, and says which cannot be looked into", async () => {
    const engines = [await serve("one"), await serve("two")];
    const urls = engines.map(({ url }) => url);
    const dead = "net://127.0.0.1:1";
    const named = [...names, "--name", "dead.example"];
    const tail = track(
      start(["tail", ...urls, dead, ...cert, ...named, "--json", ...patient], { cwd: folder }),
    );
    await tail.has(/net:\/\/127\.0\.0\.1:1/, "stderr");
    const client = await open({ security: securityOf("one") });
    const [one, two] = await Promise.all(
      urls.map((url, at) => client.connect(url, { name: at === 0 ? "one.example" : "two.example" })),
    );
    const seen = new Set<string>();
    while (seen.size < 2) {
      await one?.client(Work).ping("a");
      await two?.client(Work).ping("b");
      const whole = await tail.lines(0);
      for (const line of whole) seen.add(JSON.parse(line).url);
      await new Promise(setImmediate);
    }
    expect(seen).toEqual(new Set(urls));
    tail.child.kill("SIGINT");
    expect((await tail.ended).status).toBe(130);
  });

  it("ends when all are gone, with the status of the first", async () => {
    const { status, stdout, stderr } = await run([
      "tail",
      "net://127.0.0.1:1",
      "net://127.0.0.1:2",
      ...patient,
    ]);
    expect({ status, stdout }).toEqual({ status: 78, stdout: "" });
    expect(stderr).toMatch(
      /^cinnabar tail: [^\n]*:1[^\n]*\ncinnabar tail: [^\n]*:2[^\n]*\n$|^.*:2.*\n.*:1.*\n$/,
    );
  });
});

describe("cinnabar top", { timeout: 120_000 }, () => {
  it("shows what the process of an engine uses", async () => {
    const { url } = await serve("one");
    const args = ["top", url, ...cert, "--name", "one.example", "--once", "--every", "100ms", ...patient];
    const { stdout, status } = await run(args);
    expect(status).toBe(0);
    expect(stdout).toMatch(/^ENGINE +STATE +VERSION +NODE +UP +CPU +RSS +HEAP$/m);
    const { version } = JSON.parse(readFileSync(new URL("../../../package.json", import.meta.url), "utf8"));
    const row = new RegExp(
      `^net://\\S+ +serving +${version} +${process.versions.node} +\\S+ \\w+ +\\d+% +\\S+ +\\S+$`,
      "m",
    );
    expect(stdout).toMatch(row);
    const [engine] = JSON.parse((await run([...args, "--json"])).stdout).engines;
    expect(engine).toMatchObject({ version, node: process.versions.node });
    // The engine is in this process.
    expect(engine.residentBytes).toBeGreaterThan(1e6);
    expect(engine.residentBytes).toBeLessThan(4 * process.memoryUsage().rss);
    expect(engine.heapBytes).toBeGreaterThan(1e6);
    expect(engine.cpuShare).toBeGreaterThan(0);
  });
});

describe("a fault of the command itself", { timeout: 120_000 }, () => {
  const hostile = "\\u001b]0;owned\\u0007\\u009b31m";
  const contracts = {
    // Comes when nobody awaits it.
    later: `setTimeout(() => { throw new Error("${hostile}") }, 1); await new Promise(() => setInterval(() => {}, 1000));`,
    rejected: `void Promise.reject(new Error("${hostile}")); await new Promise(() => setInterval(() => {}, 1000));`,
    word: `setTimeout(() => { throw "${hostile}" }, 1); await new Promise(() => setInterval(() => {}, 1000));`,
  };

  it.each(Object.keys(contracts) as (keyof typeof contracts)[])(
    "is one line without control characters: %s",
    async (kind) => {
      const { urls } = await open({ listen: "net://127.0.0.1:0" });
      const contract = join(folder, `${kind}.mjs`);
      writeFileSync(contract, contracts[kind]);
      const args = ["call", urls[0] as string, "a.v1/b", "--contract", contract, ...patient];
      const { status, stdout, stderr } = await run(args);
      expect({ status, stdout }).toEqual({ status: 1, stdout: "" });
      expect(stderr).toBe(`cinnabar: unexpected error: ${hostile}; CINNABAR_DEBUG=1 prints where\n`);
      if (kind === "word") return;
      const debugged = await run(args, { CINNABAR_DEBUG: "1" });
      expect(debugged.stderr).toContain(`${kind}.mjs:1:`);
      // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
      expect(debugged.stderr).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/);
    },
  );
});
