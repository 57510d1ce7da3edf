import { spawn } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { Engine, type EngineOptions } from "cinnabar";
import { reflection } from "cinnabar-inspect";
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { cinnabar, inProcess, program, start } from "./support/command-line.ts";
import { names, servedFiles } from "./support/files-service.ts";

// Real processes against an engine of this process. It needs neither the addon nor libfabric.

/** Time limits of commands are generous: a process may wait for a processor for long. */
const patient = ["--timeout", "1m"];
const { files, touched, written, ended } = servedFiles();
let folder: string;
let url: string;
const engines: Engine[] = [];

async function serve(options: EngineOptions = {}): Promise<{ readonly engine: Engine; readonly at: string }> {
  const engine = await Engine.open({
    listen: "net://127.0.0.1:0",
    serve: [files],
    onHandlerError: () => {},
    ...options,
  });
  engines.push(engine);
  return { engine, at: engine.urls[0] as string };
}

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "cinnabar-cli-"));
  url = (await serve({ serve: (engine) => [files, reflection(engine)], limits: { maxBodyBytes: 4096 } })).at;
});

afterEach(() => {
  ended.length = 0;
});

afterAll(async () => {
  for (const engine of engines) await engine.close();
  rmSync(folder, { recursive: true });
});

/** `cinnabar call URL ARGUMENTS`. */
const call = (args: readonly string[], input = "") =>
  cinnabar(["call", url, ...args, ...patient], { input, cwd: folder });

describe("cinnabar list and describe", () => {
  it("print methods, and what they take and give", async () => {
    const listed = await cinnabar(["list", url, ...patient]);
    expect(listed).toMatchObject({ status: 0, stderr: "" });
    expect(listed.stdout).toMatch(/^files\.v1\/stat +unary +idempotent$/m);
    expect(listed.stdout).toMatch(/^files\.v1\/find +duplexStream$/m);
    const described = await cinnabar(["describe", url, "files.v1", ...patient]);
    expect(described.stdout).toContain(
      "  stat (unary, idempotent)\n    input     { path: string, follow?: boolean }",
    );
    expect(described.stdout).toContain("    error     NotFound { path: string }");
    expect(described.stdout).toContain("    input     { path: string, into: bulk(write) }");
  });

  it("print JSON Schemas of one method", async () => {
    const { stdout } = await cinnabar(["describe", url, "files.v1/echo", "--json", ...patient]);
    const { methods } = JSON.parse(stdout);
    expect(methods).toHaveLength(1);
    expect(methods[0].input.properties.id).toEqual({ type: "string", "x-cinnabar-type": "bigint" });
  });
});

describe("cinnabar call", () => {
  it("writes and reads values that JSON does not have", async () => {
    const input = {
      id: "12345678901234567890",
      at: "2026-11-24T10:00:00.000Z",
      tags: ["a"],
      left: [["b", 1]],
      data: "AQID",
      size: { from: 1, to: 2 },
    };
    const called = await call(["files.v1/echo", "-"], JSON.stringify(input));
    expect(called).toMatchObject({ status: 0, stderr: "" });
    expect(JSON.parse(called.stdout)).toEqual(input);
  });

  it.each([
    ["an unknown key", ["files.v1/stat", '{"pahth":"a"}'], "input.pahth: unknown key; did you mean path?"],
    ["a wrong type", ["files.v1/stat", '{"path":3}'], "input.path: expected string, received number"],
    ["cut input", ["files.v1/stat", '{"path":'], "the input is no JSON: "],
    ["no input", ["files.v1/stat"], "files.v1/stat needs an input"],
    ["an unknown method", ["files.v1/stta", "{}"], 'files.v1 has no method "stta"; did you mean stat?'],
    ["an unknown service", ["file.v1/stat", "{}"], 'file.v1"; did you mean files.v1?'],
    ["no memory", ["files.v1/read", '{"path":"a"}'], "input.into is memory: give it by --bulk into=@FILE"],
  ])("refuses %s with status 2 and one line, and sends nothing", async (_, args, complaint) => {
    const [method = "", ...input] = args;
    const { status, stdout, stderr } = await inProcess(["call", url, method, ...input, ...patient]);
    expect({ status, stdout }).toEqual({ status: 2, stdout: "" });
    expect(stderr).toContain(complaint);
    expect(stderr).toMatch(/^cinnabar call: [^\n]+; see `cinnabar call --help`\n$/);
  });

  it("ends with 64 and the number of the code when the call failed, and names the declared error", async () => {
    const called = await call(["files.v1/stat", '{"path":"missing.txt"}', "--json"]);
    expect(called.status).toBe(69);
    expect(called.stderr).toMatch(
      /^cinnabar call: files\.v1\/stat: \[not_found\] .*NotFound: \{"path":"missing.txt"\}\)\n$/,
    );
    const { error, method } = JSON.parse(called.stdout);
    expect({ method, error }).toMatchObject({
      method: "files.v1/stat",
      error: { code: "not_found", reason: "NotFound", data: { path: "missing.txt" } },
    });
  });

  it("prints one object with --json: output, headers, times", async () => {
    const { status, stdout } = await call([
      "files.v1/stat",
      '{"path":"abc"}',
      "--json",
      "--metadata",
      "x-a=1",
    ]);
    expect(status).toBe(0);
    expect(JSON.parse(stdout)).toEqual({
      method: "files.v1/stat",
      output: { bytes: 3, modified: "1970-01-01T00:00:00.000Z" },
      headers: { "x-server": "one" },
      trailers: {},
      error: null,
      timesMs: { connect: expect.any(Number), call: expect.any(Number) },
    });
  });

  it("prints the items of a server, sends lines, and makes one-way calls", async () => {
    expect((await call(["files.v1/list", '{"folder":"."}'])).stdout).toBe(
      names.map((name) => `"${name}"\n`).join(""),
    );
    expect(await call(["files.v1/total"], "1\n2\n\n3")).toMatchObject({ status: 0, stdout: '"6"\n' });
    expect(await call(["files.v1/touch", '{"path":"new.txt"}'])).toMatchObject({ status: 0, stdout: "" });
    await vi.waitFor(() => expect(touched).toEqual(["new.txt"]));
  });

  it("sends lines as they come, and prints answers as they come", async () => {
    const running = start(["call", url, "files.v1/find", '{"folder":"."}', ...patient]);
    running.child.stdin.write('"a.txt"\n');
    expect(await running.lines(1)).toEqual(['{"name":"a.txt","found":true}']);
    running.child.stdin.end('"z.txt"\n');
    expect(await running.lines(2)).toContain('{"name":"z.txt","found":false}');
    expect(await running.ended).toMatchObject({ status: 0, stderr: "" });
  });

  it("ends a stream at a line that is no JSON, and names the line", async () => {
    const called = await call(["files.v1/total"], "1\n{\n3\n");
    expect(called).toMatchObject({ status: 2, stdout: "" });
    expect(called.stderr).toMatch(/^cinnabar call: line 2 of the items is no JSON: /);
  });

  it("writes the memory of a call to a file, and none when the call failed", async () => {
    const read = await call(["files.v1/read", '{"path":"abc"}', "--bulk", "into=4:out.bin"]);
    expect(read).toMatchObject({ status: 0, stdout: "3\n", stderr: "" });
    expect(readFileSync(join(folder, "out.bin"), "utf8")).toBe("abc\0");
    const sent = await call(["files.v1/write", '{"path":"x"}', "--bulk", "from=@out.bin"]);
    expect(sent).toMatchObject({ status: 0, stdout: "4\n" });
    expect(written).toEqual(["abc\0"]);
    const broken = await call(["files.v1/read", '{"path":"broken"}', "--bulk", "into=8:none.bin"]);
    expect(broken.status).toBe(77);
    expect(readdirSync(folder).filter((name) => name.startsWith("none.bin"))).toEqual([]);
  });

  it("says that a payload is too long", async () => {
    const long = JSON.stringify({ path: "x".repeat(5000) });
    const called = await call(["files.v1/stat", "-"], long);
    expect(called.status).toBeGreaterThan(64);
    expect(called.stderr).toMatch(/^cinnabar call: files\.v1\/stat: \[\w+\] [^\n]*4096[^\n]*\n$/);
  });

  it("ends when the reader of its output is gone, and leaves no call behind", async () => {
    const args = ["call", url, "files.v1/list", '{"folder":"endless"}', ...patient];
    const command = [process.execPath, program, ...args].map((word) => `'${word}'`).join(" ");
    const shell = spawn("bash", ["-c", `${command} | head -n 1; echo "\${PIPESTATUS[0]}"`], {
      stdio: ["ignore", "pipe", "pipe"],
    });
    let printed = "";
    shell.stdout.setEncoding("utf8").on("data", (text: string) => {
      printed += text;
    });
    let said = "";
    shell.stderr.setEncoding("utf8").on("data", (text: string) => {
      said += text;
    });
    await new Promise((resolve) => shell.on("close", resolve));
    expect({ printed, said }).toEqual({ printed: '"again"\n141\n', said: "" });
    await vi.waitFor(() => expect(ended).toEqual(["endless"]));
  });

  it.each([
    ["SIGINT", 130],
    ["SIGTERM", 143],
  ] as const)("ends its call on %s", async (signal, status) => {
    const running = start(["call", url, "files.v1/wait", JSON.stringify({ name: signal }), ...patient]);
    await vi.waitFor(
      () => expect(engines[0]?.calls().map(({ method }) => method)).toContain("files.v1/wait"),
      {
        timeout: 60_000,
      },
    );
    running.child.kill(signal);
    expect(await running.ended).toEqual({ status, stdout: "", stderr: "" });
    await vi.waitFor(() => expect(ended).toEqual([signal]));
  });
});

describe("a server that does not answer as wished", () => {
  it("tells no methods without reflection: --contract names the contract", async () => {
    const { at } = await serve();
    const refused = await cinnabar(["call", at, "files.v1/stat", '{"path":"a"}', ...patient]);
    expect(refused).toMatchObject({ status: 76, stdout: "" });
    expect(refused.stderr).toMatch(
      /^cinnabar call: net:\/\/\S+ does not tell its methods: .*--contract FILE[^\n]*\n$/,
    );
    const contract = join(folder, "contract.mjs");
    const cinnabarAt = pathToFileURL(fileURLToPath(new URL("../../../dist/index.js", import.meta.url))).href;
    const zodAt = import.meta.resolve("zod");
    writeFileSync(
      contract,
      `import { service, unary } from "${cinnabarAt}";
import { z } from "${zodAt}";
export const Files = service("files.v1", {
  stat: unary({ input: z.object({ path: z.string() }), output: z.unknown(), idempotent: true }),
});
`,
    );
    const args = ["call", at, "files.v1/stat", "--contract", contract, ...patient];
    expect((await cinnabar([...args, '{"path":"abcd"}'])).stdout).toContain('"bytes":4');
    expect((await cinnabar([...args, '{"paths":"abcd"}'])).stderr).toContain("did you mean path?");
    const none = await cinnabar(["call", at, "files.v1/stat", "{}", "--contract", "nowhere.mjs", ...patient]);
    expect(none).toMatchObject({ status: 1 });
    expect(none.stderr).toMatch(/^cinnabar call: --contract: nowhere\.mjs cannot be loaded: [^\n]*\n$/);
  });

  it("refuses a stranger, and says what to give", async () => {
    const keys = (...args: string[]) => cinnabar(["keys", ...args], { cwd: folder });
    await keys("init");
    await keys("issue", "server", "--dns", "server.example");
    await keys("issue", "guest", "--uri", "spiffe://example/guest");
    const file = (name: string) => readFileSync(join(folder, "cinnabar-keys", name));
    const { at } = await serve({
      serve: (engine) => [files, reflection(engine)],
      security: {
        tls: { cert: file("server.pem"), key: file("server.key"), ca: file("ca.pem") },
        allow: (_, method) => method.startsWith("files.v1/"),
      },
    });
    const named = ["--name", "server.example", ...patient];
    const cert = ["--cert", "cinnabar-keys/guest.pem", ...named];
    const run = (...args: string[]) => cinnabar(args, { cwd: folder });
    const stranger = await run("list", at, ...patient);
    expect(stranger).toMatchObject({ status: 80, stdout: "" });
    expect(stranger.stderr).toMatch(/^cinnabar list: \[unauthenticated\] [^\n]*; give --cert, [^\n]*\n$/);
    const guest = await run("list", at, ...cert);
    expect(guest).toMatchObject({ status: 71, stdout: "" });
    expect(guest.stderr).toMatch(/let security\.allow permit cinnabar\.reflection\.v1\/list/);
    const nobody = await run("list", at, "--cert", "cinnabar-keys/nobody.pem", ...named);
    expect(nobody).toMatchObject({ status: 1 });
    expect(nobody.stderr).toBe("cinnabar list: --cert: there is no file cinnabar-keys/nobody.pem\n");
  });

  it("is not there: status 78", async () => {
    expect(await cinnabar(["health", "net://127.0.0.1:1", ...patient])).toEqual({
      status: 78,
      stdout: "",
      stderr: "cinnabar health: [unavailable] net://127.0.0.1:1 cannot be reached: nobody listens there\n",
    });
  });

  it.each([
    [["ping", "gopher://x"], /url "gopher:\/\/x": expected /],
    [
      ["ping", "net://127.0.0.1:1", "--count", "0"],
      /--count must be a whole number from 1 to 1000000, it is "0"/,
    ],
    [
      ["ping", "net://127.0.0.1:1", "--timeout", "5"],
      /--timeout must be a time such as 500ms, 2s or 1m, it is "5"/,
    ],
    [["list", "net://127.0.0.1:1", "--key", "a.key"], /--key belongs to a certificate: give --cert as well/],
    [["call", "net://127.0.0.1:1", "stat"], /"stat" names no method: write SERVICE\/METHOD/],
  ])("is asked wrongly: %j", async (args, complaint) => {
    const { status, stdout, stderr } = await inProcess(args);
    expect({ status, stdout }).toEqual({ status: 2, stdout: "" });
    expect(stderr).toMatch(complaint);
    expect(stderr.trimEnd()).not.toContain("\n");
  });
});

describe("cinnabar ping and health", () => {
  it("prints each answer and a summary", async () => {
    const { status, stdout } = await cinnabar(["ping", url, "--count", "2", "--interval", "1ms", ...patient]);
    expect(status).toBe(0);
    expect(stdout).toMatch(
      /^net:\S+: connected in [\d.]+ ms, with name look-up and handshake; the server is cinnabar\S* .*\nping 1: [\d.]+ ms\nping 2: [\d.]+ ms\n2 sent, 2 answered: .*\n$/,
    );
  });

  it("prints the health, and each change of it", async () => {
    const { engine, at } = await serve();
    expect(await cinnabar(["health", at, "files.v1", ...patient])).toMatchObject({
      status: 0,
      stdout: "serving\n",
    });
    expect(await cinnabar(["health", at, "nothing.v1", ...patient])).toMatchObject({
      status: 1,
      stdout: 'unknown: there is no service "nothing.v1" here\n',
    });
    const running = start(["health", at, "--watch", "--json", ...patient]);
    expect(await running.lines(1)).toEqual(['{"status":"serving"}']);
    engine.health.set("", "not_serving", { reason: "no disk" });
    expect(await running.lines(2)).toContain('{"status":"not_serving","reason":"no disk"}');
    running.child.kill("SIGINT");
    expect(await running.ended).toMatchObject({ status: 130, stderr: "" });
  });

  it("notices that a watched server is gone", async () => {
    const { engine, at } = await serve();
    const running = start(["health", at, "--watch", ...patient]);
    await running.lines(1);
    await engine.close();
    const gone = await running.ended;
    expect([1, 78]).toContain(gone.status);
    expect(gone.stderr.split("\n").length).toBeLessThanOrEqual(2);
  });
});
