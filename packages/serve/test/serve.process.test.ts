import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, it, onTestFinished } from "vitest";

const root = fileURLToPath(new URL("../../../", import.meta.url));
const command = join(root, "dist/cli/bin/cinnabar.js");
const shop = join(root, "packages/serve/test/programs/shop.mjs");
const folder = mkdtempSync(join(tmpdir(), "cinnabar-serve-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const run = (...args: string[]) =>
  spawnSync(process.execPath, [command, "serve", ...args], { encoding: "utf8", timeout: 60_000 });

describe("cinnabar serve", () => {
  it.each(["SIGTERM", "SIGINT"] as const)("drains on %s: the call in flight ends well", async (signal) => {
    const child = spawn(process.execPath, [command, "serve", shop], { stdio: ["ignore", "pipe", "inherit"] });
    onTestFinished(() => void child.kill("SIGKILL"));
    let printed = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      printed += text;
    });
    await expect.poll(() => printed).toContain("shop is ready");
    child.kill(signal);
    const [status] = await once(child, "close");
    expect(printed).toContain(`stops on ${signal}`);
    expect(printed).toContain("the call has ended well");
    expect(printed.trim().split("\n").slice(-2)).toEqual(["server has stopped", "client has stopped"]);
    expect(status).toBe(0);
  });

  it.each(["SIGTERM", "SIGINT"] as const)("gives up a start on %s, and ends well", async (signal) => {
    const file = join(root, "packages/serve/test/programs/hanging.mjs");
    const child = spawn(process.execPath, [command, "serve", file], { stdio: ["ignore", "pipe", "pipe"] });
    onTestFinished(() => void child.kill("SIGKILL"));
    let printed = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      printed += text;
    });
    let complaints = "";
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      complaints += text;
    });
    await expect.poll(() => printed).toContain("waits");
    child.kill(signal);
    const [status] = await once(child, "close");
    expect(status).toBe(0);
    expect(printed.trim().split("\n").slice(-2)).toEqual([`stops on ${signal}`, "first has stopped"]);
    // The component that hangs holds a server that it does not close.
    expect(complaints).toBe(
      "cinnabar serve: a component has left something open; the process ends without it\n",
    );
  });

  it("ends with 1 where a component that could not start has left something open", () => {
    const file = join(root, "packages/serve/test/programs/hanging.mjs");
    expect(run(file, "--hanging.fails=true")).toMatchObject({
      status: 1,
      stderr: expect.stringContaining("hanging could not start: no database"),
    });
  });

  it("says what is wrong with the file, and exits with 1", () => {
    const file = (name: string, text: string) => {
      writeFileSync(join(folder, name), text);
      return join(folder, name);
    };
    expect(run(file("none.mjs", "export default 1"))).toMatchObject({
      status: 1,
      stderr: expect.stringContaining("its default export is no application"),
    });
    expect(run(file("broken.mjs", "throw new Error('at once')"))).toMatchObject({
      status: 1,
      stderr: expect.stringContaining("could not be loaded: at once"),
    });
    const json = file("secret.json", '{"password": "hunter22",,}');
    const broken = run(shop, "--config", json);
    expect([broken.status, broken.stderr]).toEqual([1, expect.stringContaining("it is not JSON")]);
    expect(broken.stderr).not.toContain("hunter22");
  });

  it("prints the configuration without starting anything, and refuses unknown words", () => {
    expect(run(shop, "--print-config")).toMatchObject({ status: 0, stdout: "" });
    expect(run(shop, "--nobody.listen=x", "--print-config")).toMatchObject({
      status: 1,
      stderr: expect.stringContaining("nobody: there is no such component"),
    });
    expect(run(shop, "--nope")).toMatchObject({ status: 2 });
    expect(run()).toMatchObject({ status: 2 });
  });
});
