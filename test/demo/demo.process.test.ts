import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { DemoRun, isRunning } from "./support/demo-run.ts";

let folder: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "cinnabar-demo-"));
});

afterEach(() => {
  rmSync(folder, { recursive: true, force: true });
});

/** A few files of the awkward kinds: empty, in folders, odd names, longer than a window, not files at all. */
function fillFolder(): void {
  mkdirSync(join(folder, "deep", "er"), { recursive: true });
  writeFileSync(join(folder, "empty"), "");
  writeFileSync(join(folder, "one byte"), "x");
  writeFileSync(join(folder, "deep", "er", "ünïcode ☃.txt"), "snow".repeat(1000));
  const large = Buffer.alloc(20_000_000);
  for (let offset = 0; offset < large.length; offset += 4) large.writeUInt32LE(offset, offset);
  writeFileSync(join(folder, "deep", "longer than a window"), large);
  symlinkSync("/etc/hostname", join(folder, "a link"));
}

/** One file that takes long enough to pull for something to happen meanwhile, and no room on the disk. */
function fillWithLargeFile(): void {
  writeFileSync(join(folder, "large"), "");
  truncateSync(join(folder, "large"), 2 ** 28);
}

function expectNothingLeft(run: DemoRun): void {
  expect(isRunning(run.processes.server)).toBe(false);
  expect(isRunning(run.processes.client)).toBe(false);
  expect(run.leftovers()).toEqual([]);
}

describe("the demo", () => {
  it("pulls and verifies every file over shm and tcp, and ends with the table", async () => {
    fillFolder();
    const run = new DemoRun(folder);
    expect(await run.ended, run.output + run.errors).toBe(0);
    expect(run.errors).toBe("");
    expect(run.output).toContain("4 files, 20.0 MB (left out: 1 symlinks)");
    expect(run.output).toMatch(/npx cinnabar top URL .*inspection\(engine\)$/m);
    expect(run.output).toMatch(
      /^over +calls\/s +p50 +p99 +RMA +pulls +time +in all +files +bytes +verified$/m,
    );
    for (const provider of ["shm", "tcp"]) {
      expect(run.output).toMatch(new RegExp(`^${provider} .* 4 +20\\.0 MB +all$`, "m"));
      // 20,006,000 bytes and one file more: 20 windows of 1 MiB, the first of them shared with the short file before.
      expect(run.output).toContain(`${provider}: deep/longer than a window, 20.0 MB in 20 pulls, `);
    }
    expectNothingLeft(run);
  });

  it("pulls and verifies the same over node:net when it is to compare", async () => {
    fillFolder();
    const run = new DemoRun("--compare", folder);
    expect(await run.ended, run.output + run.errors).toBe(0);
    expect(run.errors).toBe("");
    expect(run.output).toMatch(/^over .* in all +times net +files +bytes +verified$/m);
    for (const [ours, theirs] of [
      ["shm", "net unix"],
      ["tcp", "net tcp"],
    ]) {
      expect(run.output).toMatch(new RegExp(`^${ours} .* GB/s +\\d+\\.\\d\\d +4 +20\\.0 MB +all$`, "m"));
      expect(run.output).toMatch(new RegExp(`^${theirs} .* GB/s +– +4 +20\\.0 MB +all$`, "m"));
    }
    expectNothingLeft(run);
    expect(existsSync(join(tmpdir(), `cinnabar-demo-${run.processes.server}.sock`))).toBe(false);
  });

  it("says which files a socket did not bring", async () => {
    fillFolder();
    const run = new DemoRun("--compare", "--over", "shm", folder);
    // The catalog is read by then, and the hashes are not: the file is there for neither of the two.
    await run.says("server is process");
    rmSync(join(folder, "one byte"));
    expect(await run.ended, run.output + run.errors).toBe(1);
    expect(run.output).toMatch(/^shm .* 3 of 4$/m);
    expect(run.output).toMatch(/^net unix .* 3 of 4$/m);
    expect(run.errors).toContain("one byte: the server could not read it");
    expectNothingLeft(run);
  });

  it("serves a single file", async () => {
    const path = join(folder, "only");
    writeFileSync(path, "alone");
    const run = new DemoRun("--over", "shm", path);
    expect(await run.ended, run.output + run.errors).toBe(0);
    expect(run.output).toMatch(/^shm .* 1 +5 B +all$/m);
    expectNothingLeft(run);
  });

  it.runIf(process.getuid?.() !== 0)("counts files it may not read and goes on", async () => {
    writeFileSync(join(folder, "open"), "x");
    writeFileSync(join(folder, "closed"), "x");
    chmodSync(join(folder, "closed"), 0);
    const run = new DemoRun("--over", "shm", folder);
    expect(await run.ended, run.output + run.errors).toBe(0);
    expect(run.output).toContain("1 unreadable");
  });

  it.each([
    ["SIGINT", 130],
    ["SIGTERM", 143],
  ] as const)("ends both processes on %s and leaves nothing", async (signal, status) => {
    fillWithLargeFile();
    const run = new DemoRun("--over", "tcp,shm", folder);
    await run.says("pulling over tcp");
    run.kill(signal);
    expect(await run.ended, run.output + run.errors).toBe(status);
    expect(run.output).toContain(`ended by ${signal}`);
    expect(run.output).not.toContain("verified");
    expect(run.errors).toBe("");
    expectNothingLeft(run);
  });

  it("says so when the server dies, and ends the client", async () => {
    fillWithLargeFile();
    const run = new DemoRun("--over", "shm", folder);
    await run.says("pulling over shm");
    process.kill(run.processes.server, "SIGKILL");
    expect(await run.ended, run.output + run.errors).toBe(1);
    expect(run.errors).toContain("the server process ended with SIGKILL");
    expect(run.errors).toContain("the server is gone");
    expect(isRunning(run.processes.client)).toBe(false);
  });

  it("says so when the client dies, and ends the server", async () => {
    fillWithLargeFile();
    const run = new DemoRun("--over", "shm", folder);
    await run.says("pulling over shm");
    process.kill(run.processes.client, "SIGKILL");
    expect(await run.ended, run.output + run.errors).toBe(1);
    expect(run.errors).toContain("the client process was ended by SIGKILL");
    expect(isRunning(run.processes.server)).toBe(false);
  });

  it("leaves no process behind when its own is killed", async () => {
    fillWithLargeFile();
    const run = new DemoRun("--over", "shm", folder);
    await run.says("pulling over shm");
    run.kill("SIGKILL");
    // Settles when the last of the three has let go of the output.
    expect(await run.ended).toBe("SIGKILL");
    await expect
      .poll(() => isRunning(run.processes.server) || isRunning(run.processes.client), {
        timeout: 20_000,
      })
      .toBe(false);
    expect(run.leftovers()).toEqual([]);
  });

  it.each([
    ["a folder that is not there", () => [join(folder, "missing")], "There is no folder or file"],
    ["what is neither a folder nor a file", () => ["/dev/null"], "neither a folder nor a regular file"],
    ["an empty folder", () => [folder], "there is nothing to serve"],
    ["two folders", () => [folder, folder], "One folder at a time"],
    ["a provider nobody listens on", () => ["--over", "pigeon", fillOne()], "does not listen over pigeon"],
    ["an unknown option", () => ["--fast"], "Unknown option"],
  ])("refuses %s with a sentence", async (_, args, sentence) => {
    const run = new DemoRun(...args());
    expect(await run.ended).toBe(1);
    expect(run.errors).toContain(sentence);
    expect(run.errors).not.toMatch(/^\s+at /m);
  });

  function fillOne(): string {
    writeFileSync(join(folder, "file"), "x");
    return folder;
  }
});
