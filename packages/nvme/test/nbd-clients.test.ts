import { execFile, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdir, mkdtemp, open, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { blocksOf, modulesOf, root } from "../../../test/docs/pages.test-support.ts";
import { start } from "../../../test/processes/support/command-line.ts";
import { type BlockDevice, memoryDevice, openFileDevice, serveNbd } from "../src/index.ts";

/** The stage disks-clients of `npm test` installs the programs and sets it. */
const hasClients = process.env.CINNABAR_DISK_CLIENTS !== undefined;
const mib = 1024 * 1024;
const bytes = 64 * mib;
let folder = "";

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "cinnabar-disk-clients-"));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const execute = promisify(execFile);
async function run(program: string, ...args: string[]): Promise<string> {
  const { stdout } = await execute(program, args, { cwd: folder, encoding: "utf8" });
  return stdout;
}

const devices: readonly [string, () => Promise<BlockDevice>][] = [
  ["memory", async () => memoryDevice({ bytes })],
  ["memory with blocks of 512 bytes", async () => memoryDevice({ bytes, blockBytes: 512 })],
  ["a file, direct where it can be", async () => openFileDevice(join(folder, "direct.img"), { bytes })],
  ["a file in the page cache", () => openFileDevice(join(folder, "cached.img"), { bytes, isDirect: false })],
];

describe.skipIf(!hasClients).each(devices)("an NBD server on %s", (_, newDevice) => {
  it("is described by nbdinfo", async () => {
    await using device = await newDevice();
    await using server = await serveNbd(device);
    const { exports } = JSON.parse(await run("nbdinfo", "--json", server.uri));
    expect(exports[0]).toMatchObject({
      "export-name": "disk",
      "export-size": bytes,
      contexts: ["base:allocation"],
      is_read_only: false,
      can_flush: true,
      can_fua: true,
      can_multi_conn: true,
      can_trim: true,
      can_zero: true,
      can_df: true,
      block_size_minimum: device.blockBytes,
      block_size_maximum: 32 * mib,
    });
    const map = JSON.parse(await run("nbdinfo", "--map", "--json", server.uri));
    expect(map.reduce((sum: number, { length }: { length: number }) => sum + length, 0)).toBe(bytes);
    expect(await run("nbdinfo", "--list", server.uri.replace("///disk", "///"))).toContain('export="disk"');
  });

  it("gives nbdcopy back what it took, over several connections", async () => {
    await using device = await newDevice();
    await using server = await serveNbd(device);
    const image = randomBytes(bytes);
    await writeFile(join(folder, "image"), image);
    await run("nbdcopy", "--flush", "image", server.uri);
    await run("nbdcopy", server.uri, "back");
    expect((await readFile(join(folder, "back"))).equals(image)).toBe(true);
    expect(server.stats().failed).toBe(0);
  });

  it("does what qemu-io asks", async () => {
    await using device = await newDevice();
    await using server = await serveNbd(device);
    const commands = [
      ...["write -P 0xab 4096 65536", "read -P 0xab 4096 65536", "flush", "write -z 8192 4096"],
      ...["read -P 0 8192 4096", "read -P 0xab 4096 4096", "discard 1M 1M", "write -f -P 3 0 512"],
      ...[
        "read -P 3 0 512",
        "write -z -u 16M 8M",
        "read -P 0 16M 8M",
        "write -P 7 24M 32M",
        "read -P 7 24M 32M",
      ],
      ...[
        "aio_write -P 5 2M 1M",
        "aio_write -P 6 3M 64k",
        "aio_flush",
        "read -P 5 2M 1M",
        "read -P 6 3M 64k",
      ],
    ];
    const said = await run("qemu-io", "-f", "raw", server.uri, ...commands.flatMap((one) => ["-c", one]));
    expect(said).not.toMatch(/failed|error|Pattern/i);
    expect(server.stats().failed).toBe(0);
  });

  it("holds a file system that e2fsck finds clean, and qemu-img compares", async () => {
    await using device = await newDevice();
    await using server = await serveNbd(device);
    const image = await open(join(folder, "fs.img"), "w");
    await image.truncate(bytes);
    await image.close();
    await run("mkfs.ext4", "-q", "-F", "-E", "root_owner=0:0", "fs.img");
    await run("qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", "fs.img", server.uri);
    expect(await run("qemu-img", "compare", "-f", "raw", "-F", "raw", "fs.img", server.uri)).toContain(
      "identical",
    );
    await run("nbdcopy", server.uri, "fs-back.img");
    await run("e2fsck", "-fn", "fs-back.img");
    expect((await stat(join(folder, "fs-back.img"))).size).toBe(bytes);
  });
});

describe.skipIf(!hasClients)("cinnabar disk serve", () => {
  it.each(["served.sock", "127.0.0.1:0"])("at %s is used by nbdinfo, nbdcopy and qemu-io", async (door) => {
    const args = ["--bytes", "64MiB", "--nbd", door, "--json"];
    const serving = start(["disk", "serve", "served.img", ...args], { cwd: folder });
    const [told = ""] = await serving.lines(1);
    const [uri = ""] = JSON.parse(told).nbd;
    expect(Number(await run("nbdinfo", "--size", uri))).toBe(bytes);
    const image = randomBytes(bytes);
    await writeFile(join(folder, "image"), image);
    await run("nbdcopy", "--flush", "image", uri);
    const commands = ["write -P 0xab 0 64k", "flush", "read -P 0xab 0 64k"].flatMap((one) => ["-c", one]);
    expect(await run("qemu-io", "-f", "raw", uri, ...commands)).not.toMatch(/failed|error|Pattern/i);
    serving.child.kill("SIGTERM");
    const { status, stdout, stderr } = await serving.ended;
    expect({ status, stderr }).toEqual({ status: 143, stderr: "" });
    expect(JSON.parse(stdout.trimEnd().split("\n").at(-1) ?? "")).toMatchObject({
      event: "ended",
      failed: 0,
    });
    image.fill(0xab, 0, 65_536);
    expect((await readFile(join(folder, "served.img"))).equals(image)).toBe(true);
  });
});

describe.skipIf(!hasClients)("the guide", () => {
  it("has a program and commands that work", async () => {
    const page = "docs/guide/disks.md";
    const [program] = modulesOf(page).filter(({ name }) => name === "serve.mjs");
    const [commands] = blocksOf(page).filter(({ comment }) => comment === "runs: serve.mjs");
    // Beside the packages, which the program imports by their names.
    await mkdir(join(root, "build"), { recursive: true });
    const own = await mkdtemp(join(root, "build/disk-guide-"));
    await writeFile(join(own, "serve.mjs"), program?.text ?? "");
    const server = spawn(process.execPath, ["serve.mjs"], { cwd: own, stdio: ["ignore", "pipe", "inherit"] });
    try {
      const [uri] = await once(server.stdout.setEncoding("utf8"), "data");
      expect(uri).toBe("nbd+unix:///disk?socket=disk.sock\n");
      await execute("bash", ["-ec", commands?.text ?? "false"], { cwd: own });
    } finally {
      const ended = once(server, "exit");
      server.kill("SIGTERM");
      expect(await ended).toEqual([0, null]);
      await rm(own, { recursive: true });
    }
  });
});
