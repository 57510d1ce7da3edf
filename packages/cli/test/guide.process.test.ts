import { execFile } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Engine, type EngineOptions } from "cinnabar";
import { reflection } from "cinnabar-inspect";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { program, type Running, start } from "./support/command-line.ts";
import { servedFiles } from "./support/files-service.ts";

// The commands of the pages, as they stand there. What is changed: where a server is, and how long a command goes on.

/** The lines of a page's shell blocks. */
function linesOf(page: string): string[] {
  const text = readFileSync(fileURLToPath(new URL(`../../../docs/guide/${page}`, import.meta.url)), "utf8");
  const blocks = [...text.matchAll(/```sh\n([\s\S]*?)```/g)].map(([, block = ""]) => block);
  return [...new Set(blocks.flatMap((block) => block.split("\n")))].filter((line) =>
    line.includes("cinnabar "),
  );
}

const all = [...new Set([...linesOf("cli.md"), ...linesOf("observe.md"), ...linesOf("deploy.md")])];

/** What other tests run, or what needs more than the command. */
const elsewhere = [
  // packages/cli/test/inspection.process.test.ts
  /cinnabar (top|why|tail) /,
  // test/package/install.test.ts, packages/cli/src/completion.test.ts
  /cinnabar build/,
  /man -l/,
  /node server\.js/,
  // packages/serve/test/serve.process.test.ts
  /cinnabar serve/,
  // packages/cli/test/proto.process.test.ts
  /cinnabar proto/,
];
const lines = all.filter((line) => !elsewhere.some((pattern) => pattern.test(line)));

/** The server that the pages call. */
const shownUrl = "net://127.0.0.1:7400";
const { files } = servedFiles();
const engines: Engine[] = [];
let folder: string;
let url: string;

async function open(options: EngineOptions = {}): Promise<string> {
  const serve = (engine: Engine) => [files, reflection(engine)];
  const engine = await Engine.open({ listen: "net://127.0.0.1:0", serve, ...options });
  engines.push(engine);
  return engine.urls[0] as string;
}

interface Ended {
  readonly status: unknown;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a line in a shell. */
function run(line: string): Promise<Ended> {
  const env = {
    ...process.env,
    NODE_OPTIONS: "",
    HOME: folder,
    PATH: `${join(folder, "bin")}:${process.env.PATH}`,
  };
  return new Promise((resolve) => {
    execFile("bash", ["-c", line], { cwd: folder, env }, (error, stdout, stderr) =>
      resolve({ status: error?.code ?? 0, stdout, stderr }),
    );
  });
}

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "cinnabar-guide-"));
  // `npx` of these lines is the command as it is built.
  const npx = join(folder, "bin", "npx");
  mkdirSync(join(folder, "bin"));
  mkdirSync(join(folder, ".config/fish/completions"), { recursive: true });
  writeFileSync(npx, `#!/bin/sh\nshift\nexec '${process.execPath}' '${program}' "$@"\n`);
  chmodSync(npx, 0o755);
  url = await open();
});

afterAll(async () => {
  for (const engine of engines) await engine.close();
  rmSync(folder, { recursive: true });
});

it("finds commands", () => {
  expect(lines.length).toBeGreaterThan(24);
  expect(all.length - lines.length).toBeLessThan(20);
});

const isBench = (line: string) => line.includes("cinnabar bench") && !line.includes("--method");
const isDisk = (line: string) => line.includes("cinnabar disk serve ");
const isSecured = (line: string) => /--(cert|psk) /.test(line);

// One after the other, in one folder: a line may read what a former one has written.
it.each(lines.filter((line) => !isBench(line) && !isDisk(line) && !isSecured(line)))(
  "runs: %s",
  async (line) => {
    const { status, stderr } = await run(line.replaceAll(shownUrl, url));
    expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
  },
);

const hasDevice = existsSync("/sys/class/infiniband") && readdirSync("/sys/class/infiniband").length > 0;

describe("the disks of the page", () => {
  it.each(lines.filter(isDisk))("are served: %s", async (line) => {
    // The line serves a small file instead of /dev/sdb, at free ports, and pipes into no other program.
    const words = line
      .replace(/ \| .*/, "")
      .replace(/\/dev\/sdb(?: --bytes \w+)?/, "sdb.img --bytes 1MiB")
      .replace("10.0.0.7", "0.0.0.0")
      .replaceAll(/:(4420|10809)/g, ":0");
    const running = start(words.split(" ").slice(2), { cwd: folder });
    if (line.includes("--nvme-rdma") && !hasDevice) {
      const { status, stderr } = await running.ended;
      expect(status).toBe(1);
      expect(stderr).toContain("this machine has no RDMA device");
      return;
    }
    await running.lines(1);
    running.child.kill("SIGTERM");
    const { status, stdout, stderr } = await running.ended;
    expect({ status, stderr }).toEqual({ status: 143, stderr: "" });
    expect(stdout).toMatch(/^ended: 0 reads|"event":"ended"/m);
  });
});

describe("the secured servers of the page", () => {
  it.each(lines.filter(isSecured))("are shown: %s", async (line) => {
    const file = (name: string) => readFileSync(join(folder, "cinnabar-keys", name));
    if (line.includes("--cert"))
      await run("npx cinnabar keys issue operator --uri spiffe://example/operator");
    const at = await open({
      security: line.includes("--cert")
        ? { tls: { cert: file("node-7.pem"), key: file("node-7.key"), ca: file("ca.pem") } }
        : { psk: { lookup: (identity) => (identity === "pair" ? file("pair.psk") : undefined) } },
    });
    const { status, stdout, stderr } = await run(line.replace(/tcp:\/\/\S+/, at));
    expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
    expect(stdout).not.toBe("");
  });
});

describe("the load of the page", () => {
  const [serving = "", ...loads] = lines.filter(isBench);
  const servers: Running[] = [];

  beforeAll(async () => {
    // The page's own delays and failures, twice.
    const words = serving
      .replace(/ +#.*/, "")
      .replace(/tcp:\S+/, "net://127.0.0.1:0")
      .split(" ")
      .slice(2);
    for (let index = 0; index < 2; index++) servers.push(start(words));
  });

  afterAll(async () => {
    for (const { child } of servers) child.kill("SIGTERM");
    for (const { ended } of servers) expect((await ended).status).toBe(143);
  });

  it("has a server", () => {
    expect(serving).toMatch(/^npx cinnabar bench serve --listen tcp:/);
    expect(loads.length).toBeGreaterThan(2);
  });

  it.each(loads)("runs: %s", async (line) => {
    const urls = await Promise.all(
      servers.map(async (server) => ((await server.lines(1))[0] ?? "").replace("listening at ", "")),
    );
    let at = 0;
    const shorter = line
      .replaceAll(/tcp:\/\/\S+/g, () => urls[at++] as string)
      .replace(/ --duration \S+/, "")
      .replace(/ --rate \d+/, " --rate 50");
    const { status, stdout, stderr } = await run(`${shorter} --duration 500ms --warmup 1ms --timeout 1m`);
    // A busy machine makes the generator late, which it says.
    if (status === 1)
      expect(stderr).toMatch(/^cinnabar bench: the run is invalid: this process started calls/);
    else expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
    expect(stdout).toMatch(/^latency +[1-9]/m);
    if (line.includes("--histogram"))
      expect(readFileSync(join(folder, "latency.hgrm"), "utf8")).toMatch(/^#\[Max /m);
    if (line.includes("--picture"))
      expect(readFileSync(join(folder, "latency.html"), "utf8")).toContain("<svg ");
  });
});
