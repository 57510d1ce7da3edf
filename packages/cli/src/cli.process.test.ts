import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { beforeAll, describe, expect, it } from "vitest";

const program = fileURLToPath(new URL("../../../dist/cli/bin/cinnabar.js", import.meta.url));
const manifest = new URL("../package.json", import.meta.url);
const { version } = JSON.parse(readFileSync(manifest, "utf8")) as { version: string };
const bold = "\u001b[";

interface Ended {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** `cinnabar ARGUMENTS` as a process, without a terminal. */
function cinnabar(args: readonly string[], env: NodeJS.ProcessEnv = {}): Ended {
  const options = { encoding: "utf8", env: { ...process.env, NODE_OPTIONS: "", ...env } } as const;
  return spawnSync(process.execPath, [program, ...args], options);
}

beforeAll(() => {
  if (!existsSync(program)) throw new Error("the command line is not built: `npm run setup` builds it");
});

describe("cinnabar", () => {
  it("lists its commands for --help, and on standard error without a command", () => {
    const helped = cinnabar(["--help"]);
    expect(helped).toMatchObject({ status: 0, stderr: "" });
    expect(helped.stdout).toContain("Usage: cinnabar COMMAND");
    expect(helped.stdout).toMatch(/^ {2}info +/m);
    expect(cinnabar([])).toMatchObject({ status: 2, stdout: "", stderr: helped.stdout });
  });

  it("prints its version", () => {
    expect(cinnabar(["--version"])).toMatchObject({ status: 0, stdout: `${version}\n` });
  });

  it.each([
    [["inof"], 'cinnabar: unknown command "inof"; `cinnabar --help` lists the commands\n'],
    [["--jsno"], 'cinnabar: unknown option "--jsno"; `cinnabar --help` lists the commands\n'],
    [["info", "--jsno"], "cinnabar info: unknown option '--jsno'; see `cinnabar info --help`\n"],
    [["info", "extra"], /^cinnabar info: unexpected argument 'extra'.*--help`\n$/],
    [["info", "--require"], /^cinnabar info: option '--require <value>' argument missing; .*\n$/],
    [
      ["info", "--require", "smoke"],
      /^cinnabar info: unknown fabric "smoke", expected one of mem, net, net\+unix, shm, tcp, verbs.*\n$/,
    ],
  ])("refuses %j with status 2 and one line", (args, complaint) => {
    const ended = cinnabar(args);
    expect(ended).toMatchObject({ status: 2, stdout: "" });
    if (typeof complaint === "string") expect(ended.stderr).toBe(complaint);
    else expect(ended.stderr).toMatch(complaint);
  });
});

describe("cinnabar build", () => {
  it("says what it lacks, without a trace of a stack", () => {
    const ended = cinnabar(["build", "--out", "/nonexistent/cinnabar.node"], { PATH: "/nonexistent" });
    expect(ended).toMatchObject({ status: 1, stdout: "" });
    expect(ended.stderr).toMatch(
      /^cinnabar build: cmake was not found: install cmake and a C\+\+20 compiler .*\n$/,
    );
  });

  it("prints its help, and refuses what it does not know", () => {
    expect(cinnabar(["build", "--help"]).stdout).toContain("--out FILE");
    expect(cinnabar(["build", "--fast"])).toMatchObject({ status: 2, stdout: "" });
  });
});

describe("cinnabar info", () => {
  it("prints a table, without colours if there is no terminal", () => {
    const { status, stdout, stderr } = cinnabar(["info"]);
    expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
    expect(stdout).toMatch(/^cinnabar \d+\.\d+\.\d+, Node \d+\.\d+\.\d+$/m);
    expect(stdout).toMatch(/^libfabric \d+\.\d+, /m);
    expect(stdout).toMatch(/^FABRIC +PROVIDER +USABLE +REASON$/m);
    expect(stdout).toMatch(/^shm:\/\/ +shm +yes$/m);
    expect(stdout).toMatch(
      /^This machine can use mem, .*\. Fastest on one host: shm\. Fastest between hosts: \w+\.\n/,
    );
    expect(stdout).not.toMatch(/^\S+:\/\/.* no +\S/m);
    expect(stdout).toMatch(/^\d+ more cannot be used here: cinnabar info --all says why$/m);
    expect(stdout).toMatch(/^Locked memory: /m);
    expect(stdout).toMatch(/^Fork safety: /m);
    expect(stdout).toMatch(
      /^Sealing: OpenSSL \S+ .*, \/\S+: aes-256-gcm [\d.]+ GB\/s, chacha20-poly1305 [\d.]+ GB\/s$/m,
    );
    expect(stdout).not.toContain(bold);
  });

  it("prints the fabrics that it lacks for --all, with the reason", () => {
    const { status, stdout } = cinnabar(["info", "--all"]);
    expect(status).toBe(0);
    expect(stdout).toMatch(/^efa:\/\/ +efa +(yes|no +\S.*)$/m);
    expect(stdout).not.toContain("more cannot be used");
  });

  it("names the fastest fabrics that are left without libfabric and addon", () => {
    const { stdout } = cinnabar(["info"], { CINNABAR_ADDON: "/nonexistent/cinnabar.node" });
    expect(stdout).toMatch(
      /^This machine can use mem, net, net\+unix\. Fastest on one host: net\+unix\. Fastest between hosts: net\.\n/,
    );
  });

  // `script` of util-linux provides a terminal.
  it.skipIf(!existsSync("/usr/bin/script"))("is bold, and as wide as the terminal, on one", () => {
    const onTerminal = (env: NodeJS.ProcessEnv) =>
      spawnSync(
        "script",
        ["-qec", `stty cols 80; '${process.execPath}' '${program}' info --all`, "/dev/null"],
        {
          encoding: "utf8",
          env: { ...process.env, NODE_OPTIONS: "", TERM: "xterm", NO_COLOR: "", ...env },
        },
      ).stdout;
    const lines = onTerminal({}).split("\r\n");
    expect(lines).toContainEqual(expect.stringMatching(/^\S+FABRIC +PROVIDER +USABLE +REASON\S+$/));
    const start = lines.findIndex((line) => line.startsWith("efa://"));
    expect(lines[start]?.length).toBeLessThanOrEqual(80);
    expect(onTerminal({ NO_COLOR: "1" })).not.toContain(bold);
    expect(onTerminal({ TERM: "dumb" })).not.toContain(bold);
  });

  it("prints the same as JSON", () => {
    const { status, stdout } = cinnabar(["info", "--json"]);
    expect(status).toBe(0);
    const report = JSON.parse(stdout);
    expect(Object.keys(report)).toEqual([
      "versions",
      "addon",
      "libfabric",
      "fabrics",
      "devices",
      "connections",
      "lockedMemory",
      "forkSafety",
      "patches",
      "sealing",
    ]);
    expect(report.sealing).toMatchObject({
      version: expect.stringMatching(/^OpenSSL 3/),
      suites: [{ name: "aes-256-gcm" }, { name: "chacha20-poly1305" }],
    });
    const shm = report.fabrics.find(({ scheme }: { scheme: string }) => scheme === "shm");
    expect(shm).toMatchObject({ provider: "shm", available: true, reason: "" });
    const tcp = report.fabrics.find(
      ({ scheme, available }: { scheme: string; available: boolean }) => scheme === "tcp" && available,
    );
    expect(tcp.domains[0].capabilities).toContain("FI_RMA");
  });

  it("exits with status 0 if all required fabrics can be used", () => {
    expect(cinnabar(["info", "--require", "shm", "--require", "tcp"]).status).toBe(0);
  });

  it("lists the paths that it tried for a missing libfabric", () => {
    const nowhere = { CINNABAR_LIBFABRIC: "/nonexistent/libfabric.so.1" };
    const { status, stdout } = cinnabar(["info"], nowhere);
    expect(status).toBe(0);
    expect(stdout).toMatch(/^libfabric not loaded: \/nonexistent\/libfabric.so.1: .*No such file/m);
    expect(cinnabar(["info", "--require", "tcp", "--require", "shm"], nowhere)).toMatchObject({
      status: 1,
      stderr: "cinnabar info: this machine cannot use tcp\n",
    });
  });

  it("lists the paths that it tried for a missing addon", () => {
    const { status, stdout } = cinnabar(["info"], { CINNABAR_ADDON: "/nonexistent/cinnabar.node" });
    expect(status).toBe(0);
    expect(stdout).toContain("addon not loaded: /nonexistent/cinnabar.node: no such file");
    expect(stdout).toMatch(/^Sealing: OpenSSL \S+, node:crypto: aes-256-gcm .* GB\/s/m);
  });

  it("prints its help", () => {
    expect(cinnabar(["info", "--help"])).toMatchObject({ status: 0, stderr: "" });
    expect(cinnabar(["help", "info"]).stdout).toBe(cinnabar(["info", "-h"]).stdout);
  });
});
