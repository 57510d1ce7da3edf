import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

const run = promisify(execFile);
const at = (path: string) => fileURLToPath(new URL(`../../${path}`, import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "cinnabar-example-"));
const keys = (...args: readonly string[]) =>
  run(process.execPath, [at("dist/cli/bin/cinnabar.js"), "keys", ...args, "--dir", folder]);

let server: ChildProcess;
let ended: Promise<unknown>;
let url: string;

beforeAll(async () => {
  await keys("init");
  await keys("issue", "server", "--dns", "server.example");
  await keys("issue", "client", "--uri", "spiffe://example/client");
  await keys("issue", "admin", "--uri", "spiffe://example/admin");
  await keys("issue", "former", "--uri", "spiffe://example/former");
  await keys("revoke");
  server = spawn(process.execPath, [at("build/examples/security/server.js"), folder, "tcp://127.0.0.1:0"], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  ended = once(server, "close");
  const [line] = await once(createInterface(server.stdout as NodeJS.ReadableStream), "line");
  url = (line as string).replace("listening at ", "");
});

afterAll(async () => {
  server.kill("SIGTERM");
  await ended;
  rmSync(folder, { recursive: true });
});

async function client(name: string): Promise<string[]> {
  const program = at("build/examples/security/client.js");
  const { stdout, stderr } = await run(process.execPath, [program, name, folder, url]);
  expect(stderr).toBe("");
  return stdout.trimEnd().split("\n");
}

describe("the example of two processes with certificates of cinnabar keys", () => {
  it("lets those in that the authority vouches for, and lets each do what it may", async () => {
    expect(await client("client")).toEqual([
      "connected to server.example",
      "open for spiffe://example/client",
      "close: permission_denied",
    ]);
    expect(await client("admin")).toEqual([
      "connected to server.example",
      "open for spiffe://example/admin",
      "closed",
    ]);
  });

  it("lets nobody in who is revoked, once the server has read the list again", async () => {
    await keys("revoke", "former");
    server.kill("SIGHUP");
    // The server reads it between two handshakes; the first of these may come before.
    await expect
      .poll(() => client("former"), { timeout: 30_000 })
      .toEqual([expect.stringMatching(/^\[unauthenticated\] .*the certificate is revoked/)]);
    expect(await client("admin")).toContain("closed");
  });

  it("lets nobody in whose certificate is of another authority", async () => {
    const other = mkdtempSync(join(tmpdir(), "cinnabar-example-"));
    const inOther = (...args: readonly string[]) =>
      run(process.execPath, [at("dist/cli/bin/cinnabar.js"), "keys", ...args, "--dir", other]);
    await inOther("init");
    await inOther("issue", "client", "--uri", "spiffe://example/admin");
    const program = at("build/examples/security/client.js");
    const { stdout } = await run(process.execPath, [program, "client", other, url]);
    rmSync(other, { recursive: true });
    expect(stdout).toMatch(/^\[unauthenticated\] /);
  });
});
