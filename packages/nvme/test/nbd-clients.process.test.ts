import { execFile, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { cp, mkdir, mkdtemp, open, readFile, rm, stat, truncate, writeFile } from "node:fs/promises";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { blocksOf, modulesOf, root } from "../../../test/docs/pages.test-support.ts";
import { cinnabar, start } from "../../cli/test/support/command-line.ts";
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

describe.skipIf(!hasClients)("an NBD server of several disks", () => {
  it("is listed by nbdinfo, and clients choose a disk by its name", async () => {
    const disks = new Map([
      ["a.img", memoryDevice({ bytes })],
      ["b c", memoryDevice({ bytes: 2 * bytes })],
    ]);
    await using server = await serveNbd(disks);
    const [first = "", second = ""] = server.uris;
    const { exports } = JSON.parse(
      await run("nbdinfo", "--list", "--json", first.replace("///a.img", "///")),
    );
    expect(exports.map((one: Record<string, unknown>) => [one["export-name"], one["export-size"]])).toEqual([
      ["a.img", bytes],
      ["b c", 2 * bytes],
    ]);
    expect(await run("nbdinfo", "--size", second)).toBe(`${2 * bytes}\n`);
    await run("qemu-io", "-f", "raw", second, "-c", "write -P 7 100M 1M");
    expect(await run("qemu-io", "-f", "raw", second, "-c", "read -P 7 100M 1M")).not.toMatch(/failed|error/i);
    expect(JSON.parse(await run("nbdinfo", "--map", "--json", first))).toHaveLength(1);
    for (const [name, why] of [
      ["c", "no export of that name: LIST shows the names"],
      ["", "several exports: choose one by its name, as LIST shows them"],
    ])
      await expect(run("qemu-img", "info", first.replace("///a.img", `///${name}`))).rejects.toThrow(why);
    await expect(run("nbdinfo", first.replace("///a.img", "///c"))).rejects.toThrow(/no export|c/);
  });
});

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
      block_size_minimum: 1,
      block_size_preferred: 4096,
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

  it("takes requests that begin and end within a block, of fio and nbdsh", async () => {
    await using device = await newDevice();
    await using server = await serveNbd(device);
    const verified = ["--verify=crc32c", "--do_verify=1", "--verify_fatal=1", "--fsync=64"];
    const job = ["--name=job", "--ioengine=nbd", `--uri=${server.uri}`, "--iodepth=32", ...verified];
    await run("fio", ...job, "--rw=randwrite", "--bs=512", "--size=1M");
    await run("fio", ...job, "--rw=randwrite", "--bsrange=512-600k", "--ba=512", "--size=32M");
    const script = `
h.connect_uri("${server.uri}")
h.pwrite(bytes(range(250)) * 3000, 4095)
h.pwrite(b"x" * 600, 500000, nbd.CMD_FLAG_FUA)
h.zero(9000, 123)
h.trim(3, 20001)
expected = bytearray(4095) + bytearray(range(250)) * 3000
expected[500000:500600] = b"x" * 600
expected[123:9123] = bytes(9000)
assert h.pread(len(expected) - 9123, 9123) == expected[9123:]
assert h.pread(9000, 123) == bytes(9000)
assert h.pread(1, 500599) == b"x"
`;
    // `nbdsh` itself takes the first python3 on the path, which may be another than Debian's.
    await run("/usr/bin/python3", "-m", "nbd", "-c", script);
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

describe.skipIf(!hasClients)("an NBD server on a file with holes", () => {
  /** Space of a file, in bytes. */
  const spaceOf = async (name: string) => 512 * (await stat(join(folder, name))).blocks;
  const total = 512 * mib;

  /** A file of 512 MiB: 48 MiB of data in parts of different lengths, the rest holes. */
  async function makeSparse(name: string): Promise<void> {
    const file = await open(join(folder, name), "w");
    await file.truncate(total);
    for (let part = 0; part < 48; part++)
      for (let piece = 0; piece < 4; piece++)
        await file.write(
          randomBytes(mib / 4),
          0,
          mib / 4,
          part * 10 * mib + piece * mib * (part % 2 === 0 ? 0.25 : 0.5),
        );
    await file.sync();
    await file.close();
  }

  it("takes as much space for a copy as nbdkit, and shows the same holes", async () => {
    await makeSparse("sparse.img");
    const allocated: Record<string, number> = {};
    const maps: unknown[] = [];
    // Bytes of the file that this copies, or those of a disk that was full before.
    for (const fill of [0, 0xff]) {
      await rm(join(folder, "ours.img"), { force: true });
      for (const name of ["ours.img", "nbdkit.img"]) await writeFile(join(folder, name), "");
      await using device = await openFileDevice(join(folder, "ours.img"), { bytes: total });
      await using server = await serveNbd(device);
      if (fill > 0) await run("qemu-io", "-f", "raw", server.uri, "-c", `write -P ${fill} 0 512M`);
      await run("nbdcopy", "--flush", "sparse.img", server.uri);
      allocated[`ours ${fill}`] = await spaceOf("ours.img");
      maps.push(JSON.parse(await run("nbdinfo", "--map", "--json", server.uri)));
      expect(await run("qemu-img", "compare", "-f", "raw", "-F", "raw", "sparse.img", server.uri)).toContain(
        "identical",
      );
      await run("nbdcopy", server.uri, "back.img");
      expect(await spaceOf("back.img")).toBeLessThan(1.1 * (await spaceOf("sparse.img")));
      expect(server.stats().failed).toBe(0);
    }
    await truncate(join(folder, "nbdkit.img"), total);
    const [copy, map] = ["nbdcopy --flush sparse.img $uri", "nbdinfo --map --json $uri > map.json"];
    await run("nbdkit", "-U", "-", "file", "nbdkit.img", "--run", `${copy} && ${map}`);
    const theirs = await spaceOf("nbdkit.img");
    const expected = JSON.parse(await readFile(join(folder, "map.json"), "utf8"));
    console.log(JSON.stringify({ allocated, nbdkit: theirs, source: await spaceOf("sparse.img") }));
    for (const bytes of Object.values(allocated)) expect(Math.abs(bytes - theirs)).toBeLessThan(theirs / 10);
    for (const one of maps) expect(one).toEqual(expected);
  });

  it("gives space back for discards, and holds what qemu-img converts and mkfs.xfs makes", async () => {
    await makeSparse("sparse.img");
    await run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", "sparse.img", "sparse.qcow2");
    await rm(join(folder, "ours.img"), { force: true });
    await using device = await openFileDevice(join(folder, "ours.img"), { bytes: total });
    await using server = await serveNbd(device);
    await run("qemu-io", "-f", "raw", server.uri, "-c", "write -P 7 0 512M", "-c", "flush");
    expect(await spaceOf("ours.img")).toBeGreaterThanOrEqual(total);
    await run("qemu-img", "convert", "-n", "-f", "qcow2", "-O", "raw", "sparse.qcow2", server.uri);
    const converted = await spaceOf("ours.img");
    expect(converted).toBeLessThan(1.1 * (await spaceOf("sparse.img")));
    const compare = ["compare", "-f", "qcow2", "-F", "raw", "sparse.qcow2", server.uri];
    expect(await run("qemu-img", ...compare)).toContain("identical");
    const discard = ["-c", "discard 0 512M", "-c", "read -P 0 0 512M"];
    await run("qemu-io", "-f", "raw", "-d", "unmap", server.uri, ...discard);
    const discarded = await spaceOf("ours.img");
    expect(discarded).toBeLessThan(mib);
    await writeFile(join(folder, "xfs.img"), "");
    await truncate(join(folder, "xfs.img"), total);
    await run("mkfs.xfs", "-q", "xfs.img");
    await run("nbdcopy", "--flush", "xfs.img", server.uri);
    const xfs = await spaceOf("ours.img");
    console.log(JSON.stringify({ converted, discarded, xfs, xfsImage: await spaceOf("xfs.img") }));
    expect(xfs).toBeLessThan(1.1 * (await spaceOf("xfs.img")) + mib);
    expect(server.stats().failed).toBe(0);
  });
});

describe.skipIf(!hasClients)("a file that is served", () => {
  it("is refused to QEMU, and one that QEMU writes to the server", async () => {
    const path = join(folder, "locked.img");
    {
      await using _device = await openFileDevice(path, { bytes });
      await expect(run("qemu-io", "-f", "raw", path, "-c", "write 0 4k")).rejects.toThrow(/lock/);
    }
    const writer = spawn("qemu-io", ["-f", "raw", path], { stdio: ["pipe", "pipe", "inherit"] });
    const ended = once(writer, "exit");
    await once(writer.stdout, "data"); // the prompt
    await expect(openFileDevice(path)).rejects.toMatchObject({ code: "in_use" });
    writer.stdin.end("quit\n");
    await ended;
    await using _device = await openFileDevice(path);
  });
});

/** Makes an authority and certificates in a folder: its files, and a folder `NAME` of each client as libnbd wants it. */
async function makeKeys(at: string, clients: readonly string[]): Promise<void> {
  const names = ["--dns", "server.example", "--ip", "127.0.0.1"];
  const commands = [
    ["init"],
    ["issue", "server", ...names],
    ...clients.map((name) => ["issue", name, "--dns", name]),
  ];
  for (const args of commands) {
    const { status, stderr } = await cinnabar(["keys", ...args, "--dir", at]);
    if (status !== 0) throw new Error(stderr);
  }
  for (const name of clients) {
    await mkdir(join(at, name));
    await cp(join(at, "ca.pem"), join(at, name, "ca-cert.pem"));
    await cp(join(at, `${name}.pem`), join(at, name, "client-cert.pem"));
    await cp(join(at, `${name}.key`), join(at, name, "client-key.pem"));
  }
}

describe.skipIf(!hasClients)("an NBD server with TLS", () => {
  const keys = () => join(folder, "keys");
  const pem = (file: string) => () => readFileSync(join(keys(), file));
  const tls = { cert: pem("server.pem"), key: pem("server.key"), ca: pem("ca.pem") };
  const by = (uri: string, client: string) =>
    `${uri}${uri.includes("?") ? "&" : "?"}tls-certificates=${join(keys(), client)}`;
  /** The same disk for QEMU, whose URIs have no TLS. */
  function qemu(uri: string, client: string): readonly string[] {
    const { hostname, port } = new URL(uri.replace(/^nbds/, "http"));
    const creds = `tls-creds-x509,id=tls,endpoint=client,dir=${join(keys(), client)}`;
    const place = `driver=nbd,host=${hostname},port=${port},export=disk,tls-creds=tls`;
    return ["--object", creds, "--image-opts", place];
  }

  beforeAll(async () => {
    await makeKeys(keys(), ["friend"]);
    // A stranger has a certificate of another authority, and trusts the server's nevertheless.
    await makeKeys(join(folder, "others"), ["stranger"]);
    for (const name of ["stranger", "distrustful"])
      await cp(join(folder, "others/stranger"), join(keys(), name), { recursive: true });
    await cp(join(keys(), "ca.pem"), join(keys(), "stranger/ca-cert.pem"));
    await mkdir(join(keys(), "nobody"));
    await cp(join(keys(), "ca.pem"), join(keys(), "nobody/ca-cert.pem"));
  });

  it.each([{ port: 0 }, {}])(
    "at %j gives nbdcopy back what it took, over several connections",
    async (at) => {
      await using device = memoryDevice({ bytes });
      await using server = await serveNbd(device, { ...at, tls });
      const uri = by(server.uri, "friend");
      expect(await run("nbdinfo", uri)).toContain("newstyle-fixed with TLS, using structured packets");
      const image = randomBytes(bytes);
      await writeFile(join(folder, "image"), image);
      await run("nbdcopy", "--flush", "image", uri);
      await run("nbdcopy", uri, "back");
      expect((await readFile(join(folder, "back"))).equals(image)).toBe(true);
      expect(server.stats()).toMatchObject({ failed: 0, refused: 0 });
    },
  );

  it("is compared by qemu-img", async () => {
    await using device = memoryDevice({ bytes });
    await using server = await serveNbd(device, { port: 0, tls });
    const image = randomBytes(bytes);
    await writeFile(join(folder, "image"), image);
    await run("nbdcopy", "--flush", "image", by(server.uri, "friend"));
    const compare = ["compare", ...qemu(server.uri, "friend"), "driver=file,filename=image"];
    expect(await run("qemu-img", ...compare)).toContain("identical");
  });

  it("refuses clients without TLS, without a certificate and with one of another authority", async () => {
    await using device = memoryDevice({ bytes });
    await using server = await serveNbd(device, { port: 0, tls });
    const plain = server.uri.replace("nbds:", "nbd:");
    await expect(run("nbdinfo", plain)).rejects.toThrow("server replied with error to opt_go request");
    await expect(run("qemu-img", "info", plain)).rejects.toThrow("this server requires TLS");
    for (const client of ["nobody", "stranger"]) {
      await expect(run("nbdinfo", by(server.uri, client))).rejects.toThrow("nbdinfo: ");
      await expect(run("qemu-img", "info", ...qemu(server.uri, client))).rejects.toThrow("qemu-img: ");
    }
    expect(server.stats()).toMatchObject({ open: 0, reads: 0, others: 0 });
    await using open = await serveNbd(device, { port: 0, tls: { cert: tls.cert, key: tls.key } });
    expect(Number(await run("nbdinfo", "--size", by(open.uri, "nobody")))).toBe(bytes);
  });

  it("is refused by clients that trust another authority, or connect to another name", async () => {
    await using device = memoryDevice({ bytes });
    await using server = await serveNbd(device, { port: 0, tls });
    for (const uri of [
      by(server.uri, "distrustful"),
      by(server.uri, "friend").replace("127.0.0.1", "localhost"),
    ])
      await expect(run("nbdinfo", uri)).rejects.toThrow("certificate verification");
    await expect(run("qemu-img", "info", ...qemu(server.uri, "distrustful"))).rejects.toThrow("certificate");
    await expect.poll(() => server.stats().inHandshake).toBe(0);
  });

  it("is refused by a client that asks for TLS where there is none", async () => {
    await using server = await serveNbd(memoryDevice({ bytes }), { port: 0 });
    await expect(run("nbdinfo", by(server.uri.replace("nbd:", "nbds:"), "friend"))).rejects.toThrow(
      "connection is closed",
    );
  });

  it("is one of `cinnabar disk serve`", async () => {
    const args = ["--bytes", "64MiB", "--nbd", "127.0.0.1:0", "--json"];
    const files = ["--nbd-cert", join(keys(), "server.pem")];
    const serving = start(["disk", "serve", "secret.img", ...args, ...files], { cwd: folder });
    const [told = ""] = await serving.lines(1);
    const [uri = ""] = JSON.parse(told).nbd;
    const image = randomBytes(bytes);
    await writeFile(join(folder, "image"), image);
    await run("nbdcopy", "--flush", "image", by(uri, "friend"));
    await expect(run("nbdinfo", by(uri, "nobody"))).rejects.toThrow("nbdinfo: ");
    serving.child.kill("SIGTERM");
    expect(await serving.ended).toMatchObject({ status: 143, stderr: "" });
    expect((await readFile(join(folder, "secret.img"))).equals(image)).toBe(true);
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
  const page = "docs/guide/disks.md";

  it.each([
    ["serve.mjs", () => "nbd+unix:///disk?socket=disk.sock"],
    ["serve-tls.mjs", (port: number) => `nbds://127.0.0.1:${port}/disk`],
  ])("has a program %s and commands that work", async (name, expected) => {
    const [program] = modulesOf(page).filter((module) => module.name === name);
    const [commands] = blocksOf(page).filter(({ comment }) => comment === `runs: ${name}`);
    const port = await freePort();
    const atPort = (text = "false") => text.replaceAll("10809", `${port}`);
    // Beside the packages, which the program imports by their names.
    await mkdir(join(root, "build"), { recursive: true });
    const own = await mkdtemp(join(root, "build/disk-guide-"));
    await makeKeys(join(own, "cinnabar-keys"), ["client"]);
    await writeFile(join(own, name), atPort(program?.text));
    const server = spawn(process.execPath, [name], { cwd: own, stdio: ["ignore", "pipe", "inherit"] });
    try {
      const [uri] = await once(server.stdout.setEncoding("utf8"), "data");
      expect(uri).toBe(`${expected(port)}\n`);
      await execute("bash", ["-ec", atPort(commands?.text)], { cwd: own });
    } finally {
      const ended = once(server, "exit");
      server.kill("SIGTERM");
      expect(await ended).toEqual([0, null]);
      await rm(own, { recursive: true });
    }
  });
});

/** A port that is free at this moment. */
async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}
