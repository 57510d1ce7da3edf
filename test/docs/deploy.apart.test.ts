import { type ChildProcess, execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { afterEach, describe, expect, it } from "vitest";
import { z } from "zod";
import { Engine, service, unary } from "../../src/index.ts";
import { blocksOf, root } from "./pages.test-support.ts";

const folder = `${root}examples/deploy/`;
const read = (file: string) => readFileSync(folder + file, "utf8");
const numberIn = (text: string, pattern: RegExp) =>
  Number(pattern.exec(text)?.[1]?.replaceAll("_", "") ?? Number.NaN);

const program = read("server.ts");
const docker = read("Dockerfile");
const unit = read("reports.service");
const manifest = read("kubernetes.yaml");

let server: ChildProcess | undefined;
afterEach(async () => {
  if (server === undefined || server.exitCode !== null || server.signalCode !== null) return;
  const ended = once(server, "exit");
  server.kill("SIGKILL");
  await ended;
});

describe("the files of the guide's page about deploying", () => {
  const shown = blocksOf("docs/guide/deploy.md").map(({ text }) => text.trimEnd());

  it.each(["server.ts", "Dockerfile", "reports.service", "kubernetes.yaml"])(
    "are those of the example: %s",
    (file) => {
      expect(shown).toContain(read(file).trimEnd());
    },
  );

  it("name the ports at which the program listens, and files that are there", () => {
    const port = numberIn(program, /LISTEN \?\? "tcp:\/\/0\.0\.0\.0:(\d+)"/);
    const probe = numberIn(program, /PROBE_PORT \?\? (\d+)/);
    expect(docker).toContain(`EXPOSE ${port} ${probe}\n`);
    expect(unit).toMatch(new RegExp(`LISTEN=tcp://0\\.0\\.0\\.0:${port} .*PROBE_PORT=${probe}\\n`));
    expect(manifest).toContain(`port: ${port} }`);
    expect(manifest).toContain(`containerPort: ${port} }`);
    expect(manifest).toContain(`httpGet: { path: /, port: ${probe} }`);
    const [, started] = /^CMD \["node", "(.*)"\]$/m.exec(docker) ?? [];
    expect(existsSync(`${folder}${started}`)).toBe(true);
    expect(unit).toContain(`/${started}\n`);
    const { version } = JSON.parse(readFileSync(`${root}package.json`, "utf8")) as { version: string };
    expect(docker).toContain(`COPY cinnabar-${version}.tgz ./`);
  });

  it("give the program more time to end than it takes", () => {
    const graceSeconds = numberIn(program, /graceMs: ([\d_]+)/) / 1_000;
    expect(graceSeconds).toBeGreaterThan(0);
    expect(numberIn(unit, /^TimeoutStopSec=(\d+)$/m)).toBeGreaterThan(graceSeconds);
    expect(numberIn(manifest, /terminationGracePeriodSeconds: (\d+)/)).toBeGreaterThan(graceSeconds);
  });

  it.skipIf(spawnSync("systemd-analyze", ["--version"]).status !== 0)("are a unit that systemd takes", () => {
    // The program and its user are not on this machine.
    const checked = spawnSync("systemd-analyze", ["verify", "--man=no", `${folder}reports.service`], {
      encoding: "utf8",
    });
    const faults = checked.stderr.split("\n").filter((line) => /reports\.service/.test(line));
    expect(faults.filter((line) => !/is not executable|Failed to resolve|No such file/.test(line))).toEqual(
      [],
    );
  });

  it.skipIf(spawnSync("python3", ["-c", "import yaml"]).status !== 0)(
    "are documents of YAML with a service and a deployment",
    () => {
      const script = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(sys.stdin))))";
      const documents = JSON.parse(
        execFileSync("python3", ["-c", script], { input: manifest, encoding: "utf8" }),
      );
      expect(documents).toMatchObject([
        { kind: "Service", spec: { clusterIP: "None", selector: { app: "reports" } } },
        { kind: "Deployment", spec: { template: { metadata: { labels: { app: "reports" } } } } },
      ]);
    },
  );
});

describe("the program of the guide's page about deploying", () => {
  it("answers its probe, and loses no call when it is ended", { timeout: 60_000 }, async () => {
    server = spawn(process.execPath, [`${root}build/examples/deploy/server.js`], {
      env: { ...process.env, LISTEN: "net://127.0.0.1:0", PROBE_PORT: "0" },
      stdio: ["ignore", "pipe", "inherit"],
    });
    const lines = createInterface({ input: server.stdout as NodeJS.ReadableStream })[Symbol.asyncIterator]();
    const [, url = "", port] =
      /^listening at (\S+), probe at port (\d+)$/.exec((await lines.next()).value) ?? [];
    const probe = async () => (await fetch(`http://127.0.0.1:${port}/`)).status;
    expect(await probe()).toBe(200);

    const Reports = service("reports.v1", {
      build: unary({ input: z.object({ delayMs: z.int() }), output: z.string() }),
    });
    await using engine = await Engine.open();
    const peer = await engine.connect(url);
    const reports = peer.client(Reports);
    const running = reports.build({ delayMs: 1_000 });
    const drains = new Promise<void>((resolve) => peer.on("draining", () => resolve()));
    await reports.build({ delayMs: 0 });
    server.kill("SIGTERM");
    await drains;
    expect(await probe()).toBe(503);
    const late = await reports.build.result({ delayMs: 0 });
    expect(late).toMatchObject({ ok: false, error: { code: "unavailable", notExecuted: true } });
    expect(await running).toBe("the report");
    expect(await once(server, "exit")).toEqual([0, null]);
  });
});
