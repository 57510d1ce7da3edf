import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { implement, service, unary } from "cinnabar";
import { afterEach, describe, expect, it } from "vitest";
import { until } from "../../../test/processes/support/peers.ts";
import { program } from "./support/command-line.ts";
import { endAll, ends, open, serve } from "./support/watched-server.ts";

afterEach(endAll);

/** The program as set-up got it, or as it is installed; undefined where it is not. */
function findTmux(): { readonly command: string; readonly env: NodeJS.ProcessEnv } | undefined {
  const folder = fileURLToPath(new URL("../../../build/tmux/", import.meta.url));
  const command = join(folder, "usr/bin/tmux");
  if (!existsSync(command))
    return spawnSync("tmux", ["-V"]).status === 0 ? { command: "tmux", env: {} } : undefined;
  const libraries = ["lib", "usr/lib"].map((name) => join(folder, name)).filter(existsSync);
  const paths = libraries.flatMap((lib) => readdirSync(lib).map((name) => join(lib, name)));
  return { command, env: { LD_LIBRARY_PATH: paths.join(":") } };
}

const tmux = findTmux();

/** A command on a screen of tmux, which a reader looks at and types to. */
class Screen {
  readonly #folder = mkdtempSync(join(tmpdir(), "cinnabar-tmux-"));

  constructor(columns: number, rows: number, command: string) {
    const size = ["-x", `${columns}`, "-y", `${rows}`];
    this.#run(
      "-f",
      "/dev/null",
      "new-session",
      "-d",
      ...size,
      `${command}; printf 'ended with %s' $?; exec cat`,
    );
    ends.push(() => {
      this.#run("kill-server");
      rmSync(this.#folder, { recursive: true, force: true });
    });
  }

  /** What stands on it, by lines. */
  get lines(): string[] {
    return this.#run("capture-pane", "-p").split("\n");
  }

  type(key: string): void {
    this.#run("send-keys", key);
  }

  /** Resolves when a line has this. */
  has(pattern: RegExp): Promise<void> {
    return until(() => this.lines.some((line) => pattern.test(line)));
  }

  #run(...args: string[]): string {
    const { command, env } = tmux as NonNullable<typeof tmux>;
    const { status, stdout, stderr } = spawnSync(command, ["-S", join(this.#folder, "socket"), ...args], {
      encoding: "utf8",
      env: { ...process.env, ...env, NODE_OPTIONS: "", LC_ALL: "C.UTF-8" },
    });
    if (status !== 0) throw new Error(`tmux ${args.join(" ")}: ${stderr}`);
    return stdout;
  }
}

describe.skipIf(tmux === undefined)("cinnabar top on a terminal of 80 columns", () => {
  it("fits the screen, sorts by the next column, and ends with q", async () => {
    const long = service("a-service-with-a-rather-long-name-for-a-terminal.v1", {
      aMethodWithALongName: unary(),
    });
    const served = implement(long, { aMethodWithALongName() {} });
    const servers = [await serve({ serve: [served] }), await serve({ serve: [served] })];
    const urls = servers.map(({ url }) => url);
    for (const url of urls) await (await (await open()).connect(url)).client(long).aMethodWithALongName();
    const screen = new Screen(
      80,
      24,
      `'${process.execPath}' '${program}' top ${urls.join(" ")} --every 100ms`,
    );
    await screen.has(/^sorted by calls; /);
    // A server that has answered once has no figures yet.
    const row = /^…?\S*127\.0\.0\.1:\d+ +serving .*%$/;
    await expect.poll(() => screen.lines.slice(1, 3)).toEqual(urls.map(() => expect.stringMatching(row)));
    const { lines } = screen;
    // A line that is too long would go on in the next one.
    expect(lines[0]).toMatch(/^ENGINE +STATE +IN\/S .* STALL$/);
    expect(lines[3]).toBe("");
    expect(lines[4]).toMatch(/^METHOD +DIR +CALLS\/S .* P99$/);
    expect(lines[5]).toMatch(/^…\S*aMethodWithALongName +in /);
    expect(lines[6]).toBe("");
    expect(lines[7]).toBe("sorted by calls; s: next column, p: calls or processes, q: end");
    screen.type("s");
    await screen.has(/^sorted by errors; /);
    screen.type("p");
    await screen.has(/^ENGINE +STATE +VERSION .* HEAP$/);
    expect(screen.lines.some((line) => line.includes("STALL"))).toBe(false);
    screen.type("p");
    await screen.has(/^ENGINE .* STALL$/);
    screen.type("q");
    await screen.has(/ended with 0$/);
  });
});
