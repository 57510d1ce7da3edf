import { cp, mkdtemp, readFile, rm, stat, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { NvmeHost } from "../../nvme/src/index.ts";
import { NbdClient } from "../../nvme/src/nbd/nbd-client.test-support.ts";
import { type ConnectFields, HostQueue } from "../../nvme/src/tcp/host.test-support.ts";
import { cinnabar, program, type Running, start } from "./support/command-line.ts";

const mib = 1024 * 1024;
let folder = "";
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "cinnabar-disk-"));
});
afterAll(() => rm(folder, { recursive: true }));

interface Serving {
  readonly disks: readonly {
    readonly file: string;
    readonly bytes: number;
    readonly blockBytes: number;
    readonly isReadOnly: boolean;
  }[];
  readonly nvmeTcp: readonly { readonly host: string; readonly port: number; readonly nqn: string }[];
  readonly nbd: readonly string[];
}

async function serving(running: Running): Promise<Serving> {
  const [first = ""] = await running.lines(1);
  const told = JSON.parse(first);
  expect(told.event).toBe("serving");
  return told;
}

/** An admin queue and an I/O queue of a host. */
async function connected({ nvmeTcp }: Serving, fields: Partial<ConnectFields> = {}): Promise<HostQueue> {
  const [{ port, nqn } = { port: 0, nqn: "" }] = nvmeTcp;
  const control = await HostQueue.open(port);
  await control.greet();
  const { status, result } = await control.connect({ nqn, ...fields });
  if (status !== 0) throw new Error(`status ${status}`);
  await control.setProperty(0x14, 0x460001);
  const queue = await HostQueue.open(port);
  await queue.greet();
  await queue.connect({ nqn, queueId: 1, entries: 32, controllerId: Number(result), ...fields });
  return queue;
}

/** The first interval that fits, of the lines that come. */
async function intervalWith(running: Running, fits: (interval: Record<string, number>) => boolean) {
  for (let count = 2; ; count++) {
    const line = (await running.lines(count))[count - 1] ?? "";
    const told = JSON.parse(line);
    expect(told.event).toBe("interval");
    if (fits(told)) return told;
  }
}

describe("cinnabar disk serve", () => {
  it("serves a file that it makes over NVMe/TCP and NBD, tells what passes, and ends cleanly", async () => {
    const args = ["--bytes", "8MiB", "--nvme-tcp", "127.0.0.1:0", "--nbd", "disk.sock"];
    const running = start(["disk", "serve", "new.img", ...args, "--every", "100ms", "--json"], {
      cwd: folder,
    });
    const told = await serving(running);
    expect(told).toMatchObject({
      disks: [{ file: "new.img", bytes: 8 * 1024 * 1024, blockBytes: 4096, isReadOnly: false }],
      nbd: ["nbd+unix:///disk?socket=disk.sock"],
    });
    const queue = await connected(told);
    const block = Buffer.alloc(8192, "stamp");
    expect((await queue.write(3, block)).status).toBe(0);
    const found = await intervalWith(running, ({ writesPerSecond = 0 }) => writesPerSecond > 0);
    expect(found.writtenBytesPerSecond / found.writesPerSecond).toBeCloseTo(8192);
    expect(found).toMatchObject({ connections: 2, failed: 0 });
    // The other door leads to the same disk.
    const client = await NbdClient.open(told.nbd[0]?.replace("disk.sock", join(folder, "disk.sock")) ?? "");
    expect((await client.read(3 * 4096, 8192)).equals(block)).toBe(true);
    running.child.kill("SIGTERM");
    const { status, stdout, stderr } = await running.ended;
    expect({ status, stderr }).toEqual({ status: 143, stderr: "" });
    const last = JSON.parse(stdout.trimEnd().split("\n").at(-1) ?? "");
    expect(last).toMatchObject({ event: "ended", writes: 1, writtenBytes: 8192, reads: 1, failed: 0 });
    expect((await readFile(join(folder, "new.img"))).subarray(3 * 4096, 5 * 4096).equals(block)).toBe(true);
    // The name of the disk is the same when it is served again, by another name of the file.
    const again = start(
      ["disk", "serve", join(folder, "new.img"), "--nvme-tcp", "127.0.0.1:0", "--read-only"],
      {
        cwd: tmpdir(),
      },
    );
    const [size = "", door = ""] = await again.lines(2);
    expect(size).toBe(`${join(folder, "new.img")}: 8388608 bytes, blocks of 4096, read-only`);
    expect(door).toMatch(new RegExp(`^nvme-tcp: 127\\.0\\.0\\.1:\\d+ ${told.nvmeTcp[0]?.nqn}$`));
    again.child.kill("SIGINT");
    expect(await again.ended).toMatchObject({
      status: 130,
      stdout: expect.stringMatching(/\nended: 0 reads, 0 writes, 0 others, 0 errors\n$/),
    });
  });

  it("lets clients of NBD in by TLS alone, and by certificates unless it is told otherwise", async () => {
    for (const args of [
      ["init"],
      ["issue", "server", "--dns", "server.example"],
      ["issue", "me", "--dns", "me"],
    ])
      expect(await cinnabar(["keys", ...args], { cwd: folder })).toMatchObject({ status: 0 });
    const read = (file: string) => readFile(join(folder, "cinnabar-keys", file));
    const tls = { ca: await read("ca.pem"), servername: "server.example" };
    const mine = { ...tls, cert: await read("me.pem"), key: await read("me.key") };
    const args = ["--bytes", "1MiB", "--nbd", "tls.sock", "--nbd-cert", "cinnabar-keys/server.pem", "--json"];
    for (const [more, admitted, refused] of [
      [[], [mine], [tls, undefined]],
      [["--nbd-ca", "any"], [mine, tls], [undefined]],
    ] as const) {
      const running = start(["disk", "serve", "tls.img", ...args, ...more], { cwd: folder });
      const [uri = ""] = (await serving(running)).nbd;
      expect(uri).toBe("nbds+unix:///disk?socket=tls.sock");
      const open = (options: typeof mine | typeof tls | undefined) =>
        NbdClient.open(uri.replace("tls.sock", join(folder, "tls.sock")), {
          ...(options && { tls: options }),
        });
      for (const options of admitted) expect((await (await open(options)).read(0, 4096)).length).toBe(4096);
      for (const options of refused) await expect(open(options)).rejects.toThrow();
      running.child.kill("SIGTERM");
      expect(await running.ended).toMatchObject({ status: 143, stderr: "" });
    }
  });

  it("admits the hosts that it is told, and takes no writes where it is told so", async () => {
    const nqn = "nqn.2026-11.test:disk";
    const host = "nqn.2026-11.test:friend";
    const args = ["--bytes", "1MiB", "--nvme-tcp", "127.0.0.1:0", "--nqn", nqn, "--allow-host", host];
    const first = start(["disk", "serve", "one.img", ...args, "--json"], { cwd: folder });
    const told = await serving(first);
    await expect(connected(told)).rejects.toThrow("status 388");
    expect((await (await connected(told, { host })).write(0, Buffer.alloc(4096))).status).toBe(0);
    first.child.kill("SIGTERM");
    await first.ended;
    const second = start(
      ["disk", "serve", "one.img", "--nvme-tcp", "127.0.0.1:0", "--nqn", nqn, "--read-only", "--json"],
      { cwd: folder },
    );
    const queue = await connected(await serving(second));
    expect((await queue.write(0, Buffer.alloc(4096))).status).toBe(0x182);
    expect((await queue.read(0, 4096)).status).toBe(0);
    second.child.kill("SIGTERM");
    await second.ended;
  });

  it("grows with its file, and notifies a host", async () => {
    const args = [
      "--bytes",
      "1MiB",
      "--nvme-tcp",
      "127.0.0.1:0",
      "--watch-size",
      "--every",
      "100ms",
      "--json",
    ];
    const running = start(["disk", "serve", "grow.img", ...args], { cwd: folder });
    const [address] = (await serving(running)).nvmeTcp;
    if (address === undefined) throw new Error("no address");
    const paths = [{ host: address.host, port: address.port }];
    await using host = await NvmeHost.connect({ nqn: address.nqn, paths });
    const [disk] = host.namespaces;
    await truncate(join(folder, "grow.img"), 2 * 1024 * 1024);
    await expect.poll(() => disk?.bytes).toBe(2 * 1024 * 1024);
    await disk?.write(2 * 1024 * 1024 - 4096, Buffer.alloc(4096, 5));
    await host.close();
    running.child.kill("SIGTERM");
    expect((await running.ended).stdout).toContain('{"event":"grown","file":"grow.img","bytes":2097152}');
  });

  it("serves several files: exports of NBD by their names, and namespaces of one subsystem", async () => {
    const files = ["first.img", "second.img"];
    for (const [index, file] of files.entries())
      await writeFile(join(folder, file), Buffer.alloc((index + 1) * mib));
    const args = [
      "--nvme-tcp",
      "127.0.0.1:0",
      "--nbd",
      "several.sock",
      "--every",
      "100ms",
      "--watch-size",
      "--json",
    ];
    const running = start(["disk", "serve", ...files, ...args], { cwd: folder });
    const told = await serving(running);
    expect(told.disks.map(({ file, bytes }) => [file, bytes])).toEqual([
      ["first.img", mib],
      ["second.img", 2 * mib],
    ]);
    expect(told.nbd).toEqual(files.map((file) => `nbd+unix:///${file}?socket=several.sock`));
    const uri = `nbd+unix:///?socket=${join(folder, "several.sock")}`;
    const client = await NbdClient.open(uri, { name: "second.img" });
    const stamp = Buffer.alloc(4096, "stamp");
    expect(await client.errorOf({ type: 1, offset: 2 * mib - 4096, bytes: 4096 }, stamp)).toBe(0);
    await expect(NbdClient.open(uri, { name: "c.img" })).rejects.toThrow("80000006");
    const [{ host: address, port, nqn } = { host: "", port: 0, nqn: "" }] = told.nvmeTcp;
    await using host = await NvmeHost.connect({ nqn, paths: [{ host: address, port }] });
    const [first, second] = host.namespaces;
    expect([first?.bytes, second?.bytes, host.namespaces.length]).toEqual([mib, 2 * mib, 2]);
    expect(first?.uuid).not.toBe(second?.uuid);
    const found = Buffer.alloc(4096);
    await second?.read(2 * mib - 4096, found);
    expect(found.equals(stamp)).toBe(true);
    // Counts are those of all disks, and each grows for itself.
    await truncate(join(folder, "second.img"), 3 * mib);
    await expect.poll(() => second?.bytes).toBe(3 * mib);
    expect(first?.bytes).toBe(mib);
    await host.close();
    running.child.kill("SIGTERM");
    const { status, stdout, stderr } = await running.ended;
    expect({ status, stderr }).toEqual({ status: 143, stderr: "" });
    expect(stdout).toContain('{"event":"grown","file":"second.img","bytes":3145728}');
    expect(JSON.parse(stdout.trimEnd().split("\n").at(-1) ?? "")).toMatchObject({
      writes: 1,
      reads: 1,
      failed: 0,
    });
  });

  it("gives disks the names that it is given", async () => {
    const names = ["--name", "left", "--name", "right", "--bytes", "1MiB", "--nbd", "names.sock", "--json"];
    const running = start(["disk", "serve", "left.img", "right.img", ...names], { cwd: folder });
    expect((await serving(running)).nbd).toEqual([
      "nbd+unix:///left?socket=names.sock",
      "nbd+unix:///right?socket=names.sock",
    ]);
    running.child.kill("SIGTERM");
    expect(await running.ended).toMatchObject({ status: 143, stderr: "" });
  });

  it("bounds the rate of each host as it is told", async () => {
    const rates = ["--max-bytes-per-second", "4KiB", "--max-ops-per-second", "1000"];
    const args = ["--bytes", "1MiB", "--nbd", "rates.sock", "--nvme-tcp", "127.0.0.1:0", ...rates, "--json"];
    const running = start(["disk", "serve", "rates.img", ...args], { cwd: folder });
    const told = await serving(running);
    const client = await NbdClient.open(`nbd+unix:///disk?socket=${join(folder, "rates.sock")}`);
    await client.read(0, mib);
    // More than four minutes are to go until the next one, here and over NVMe.
    const late = client.read(0, mib).then(
      () => "read",
      () => "ended",
    );
    const queue = await connected(told);
    expect((await queue.read(0, mib)).status).toBe(0);
    const later = queue.read(0, 4096).then(
      () => "read",
      () => "ended",
    );
    running.child.kill("SIGTERM");
    const { status, stdout, stderr } = await running.ended;
    expect({ status, stderr }).toEqual({ status: 143, stderr: "" });
    expect(JSON.parse(stdout.trimEnd().split("\n").at(-1) ?? "")).toMatchObject({ readBytes: 2 * mib });
    expect(await Promise.all([late, later])).toEqual(["ended", "ended"]);
  });

  it("grants queues and connections as it is told", async () => {
    const limits = ["--max-connections", "4", "--max-io-queues", "2"];
    const args = [
      "--bytes",
      "1MiB",
      "--nvme-tcp",
      "127.0.0.1:0",
      "--nbd",
      "limits.sock",
      ...limits,
      "--json",
    ];
    const running = start(["disk", "serve", "limits.img", ...args], { cwd: folder });
    const [address] = (await serving(running)).nvmeTcp;
    if (address === undefined) throw new Error("no address");
    const options = { nqn: address.nqn, paths: [{ host: address.host, port: address.port }], queues: 64 };
    const host = await NvmeHost.connect(options);
    expect(await intervalWith(running, ({ connections = 0 }) => connections > 0)).toMatchObject({
      connections: 3,
    });
    await expect(NvmeHost.connect(options)).rejects.toThrow("the controller is busy");
    await host.close();
    running.child.kill("SIGTERM");
    await running.ended;
  });

  it("refuses a file that another process serves, unless both say that they are paths; a kill frees it", async () => {
    const args = ["disk", "serve", "held.img", "--bytes", "1MiB", "--nbd"];
    const alone = start([...args, "alone.sock", "--json"], { cwd: folder });
    await serving(alone);
    const second = await cinnabar([...args, "second.sock"], { cwd: folder });
    expect(second).toMatchObject({ status: 1, stderr: expect.stringMatching(/held\.img is open elsewhere/) });
    expect(await cinnabar([...args, "second.sock", "--shared"], { cwd: folder })).toMatchObject({
      status: 1,
    });
    alone.child.kill("SIGKILL");
    await alone.ended;
    const paths = ["one.sock", "other.sock"].map((socket) =>
      start([...args, socket, "--shared", "--json"], { cwd: folder }),
    );
    for (const path of paths) await serving(path);
    expect(await cinnabar([...args, "second.sock"], { cwd: folder })).toMatchObject({ status: 1 });
    for (const path of paths) {
      path.child.kill("SIGTERM");
      expect(await path.ended).toMatchObject({ status: 143, stderr: "" });
    }
  });

  it("admits a host that proves the secret of a file, and proves its own", async () => {
    for (const file of ["host.secret", "own.secret"]) {
      const made = await cinnabar(["disk", "secret", file], { cwd: folder });
      expect(made).toEqual({ status: 0, stdout: `wrote ${file}\n`, stderr: "" });
      expect((await stat(join(folder, file))).mode & 0o777).toBe(0o600);
    }
    const again = await cinnabar(["disk", "secret", "own.secret"], { cwd: folder });
    expect(again).toMatchObject({ status: 1, stdout: "", stderr: expect.stringMatching(/EEXIST/) });
    const read = async (file: string) => (await readFile(join(folder, file), "utf8")).trim();
    const [secret, controllerSecret] = [await read("host.secret"), await read("own.secret")];
    await writeFile(join(folder, "both.secrets"), `${secret}\n${controllerSecret}\n`);
    const [nqn, hostNqn] = ["nqn.2026-11.test:disk", "nqn.2026-11.test:friend"];
    const hosts = ["--allow-host", `${hostNqn}=both.secrets`];
    const args = ["--bytes", "1MiB", "--nvme-tcp", "127.0.0.1:0", "--nqn", nqn, ...hosts, "--json"];
    const running = start(["disk", "serve", "secrets.img", ...args], { cwd: folder });
    const [address] = (await serving(running)).nvmeTcp;
    if (address === undefined) throw new Error("no address");
    const options = { nqn, hostNqn, paths: [{ host: address.host, port: address.port }] };
    await expect(NvmeHost.connect(options)).rejects.toThrow("the target wants a secret");
    await using host = await NvmeHost.connect({ ...options, secret, controllerSecret });
    await host.namespaces[0]?.write(0, Buffer.alloc(4096, 1));
    await host.close();
    running.child.kill("SIGTERM");
    await running.ended;
  });

  it("demands TLS of every host, with the key of a file, unless plain text is allowed", async () => {
    const made = await cinnabar(["disk", "secret", "--tls", "host.tlskey"], { cwd: folder });
    expect(made).toEqual({ status: 0, stdout: "wrote host.tlskey\n", stderr: "" });
    expect((await stat(join(folder, "host.tlskey"))).mode & 0o777).toBe(0o600);
    const key = (await readFile(join(folder, "host.tlskey"), "utf8")).trim();
    const [nqn, hostNqn] = ["nqn.2026-11.test:disk", "nqn.2026-11.test:friend"];
    const args = ["--nvme-tcp", "0.0.0.0:0", "--tls-key", `${hostNqn}=host.tlskey`, "--nqn", nqn, "--json"];
    const running = start(["disk", "serve", "tls.img", "--bytes", "1MiB", ...args], { cwd: folder });
    const port = (await serving(running)).nvmeTcp[0]?.port as number;
    const options = { nqn, hostNqn, paths: [{ host: "127.0.0.1", port }] };
    await expect(NvmeHost.connect(options)).rejects.toThrow("no path to");
    await using host = await NvmeHost.connect({ ...options, tls: { key } });
    await host.namespaces[0]?.write(0, Buffer.alloc(4096, 1));
    await host.close();
    running.child.kill("SIGTERM");
    await running.ended;

    const open = ["--allow-plaintext", "--allow-host", "any"];
    const both = start(["disk", "serve", "tls.img", ...args, ...open], { cwd: folder });
    const plainPort = (await serving(both)).nvmeTcp[0]?.port as number;
    const paths = [{ host: "127.0.0.1", port: plainPort }];
    await expect(NvmeHost.connect({ nqn, hostNqn, paths })).rejects.toThrow("does not admit this host");
    await using plain = await NvmeHost.connect({ nqn, paths });
    expect(await plain.namespaces[0]?.compare(0, Buffer.alloc(4096, 1))).toBe(true);
    await plain.close();
    both.child.kill("SIGTERM");
    await both.ended;
  });

  const withKey = ["t.img", "--bytes", "1MiB", "--nvme-tcp", "127.0.0.1:0", "--tls-key"];

  it.each<[string, readonly string[], number, RegExp]>([
    ["a key of TLS in no form", [...withKey, "a.key"], 2, /--tls-key must be NQN=FILE/],
    [
      "two keys for one host",
      [...withKey, "nqn.a=a", "--tls-key", "nqn.a=b"],
      2,
      /two of --tls-key are for nqn\.a/,
    ],
    ["a key of TLS that is missing", [...withKey, "nqn.a=none.key"], 1, /--tls-key: ENOENT/],
    [
      "a key of TLS in a file of others",
      [...withKey, "nqn.a=t.img"],
      1,
      /must be a key for TLS as makeTlsKey gives it/,
    ],
    [
      "a key of TLS for no door",
      ["t.img", "--nbd", "t.sock", "--tls-key", "nqn.a=a"],
      2,
      /--tls-key needs --nvme-tcp/,
    ],
    [
      "plain text for all",
      ["t.img", "--nvme-tcp", "127.0.0.1:0", "--allow-plaintext"],
      2,
      /--allow-plaintext needs --tls-key/,
    ],
    ["TLS without a key", ["t.img", "--nvme-tcp", "127.0.0.1:0", "--tls"], 2, /--tls is for secret/],
    [
      "plain text for others without hosts",
      ["t.img", "--nvme-tcp", "0.0.0.0:0", "--tls-key", "nqn.a=a", "--allow-plaintext"],
      2,
      /give --allow-host/,
    ],
    [
      "a device of others beside TLS without hosts",
      [...withKey, "nqn.a=a", "--nvme-rdma", "10.0.0.7:0"],
      2,
      /give --allow-host/,
    ],
    ["no door", ["a.img"], 2, /give --nvme-tcp, --nvme-rdma or --nbd/],
    ["no file", ["--nbd", "a.sock"], 2, /expected serve and one FILE or several, or secret and one FILE/],
    ["an address of others without hosts", ["a.img", "--nvme-tcp", "0.0.0.0:0"], 2, /give --allow-host/],
    ["a path for NVMe/TCP", ["a.img", "--nvme-tcp", "a.sock"], 2, /must be HOST:PORT/],
    ["a path for NVMe/RDMA", ["a.img", "--nvme-rdma", "a.sock"], 2, /--nvme-rdma must be HOST:PORT/],
    ["a device of others without hosts", ["a.img", "--nvme-rdma", "10.0.0.7:0"], 2, /give --allow-host/],
    ["a port that is too high", ["a.img", "--nbd", "127.0.0.1:70000"], 2, /a port is from 0 to 65535/],
    [
      "a rate below a block",
      ["a.img", "--bytes", "1MiB", "--nbd", "a.sock", "--max-bytes-per-second", "1KiB"],
      1,
      /from 4096 to/,
    ],
    ["no operations", ["a.img", "--nbd", "a.sock", "--max-ops-per-second", "0"], 2, /from 1 to 1000000000/],
    ["too few connections", ["a.img", "--nbd", "a.sock", "--max-connections", "1"], 2, /from 2 to 65536/],
    ["an interval that is too short", ["a.img", "--nbd", "a.sock", "--every", "1ms"], 2, /at least 100ms/],
    [
      "a key without its certificate",
      ["a.img", "--nbd", "a.sock", "--nbd-key", "a.key"],
      2,
      /give --nbd-cert/,
    ],
    [
      "a certificate for no door",
      ["a.img", "--nvme-tcp", "127.0.0.1:0", "--nbd-cert", "a.pem"],
      2,
      /--nbd-cert needs --nbd/,
    ],
    [
      "a list for any client",
      ["a.img", "--nbd", "a.sock", "--nbd-cert", "a.pem", "--nbd-ca", "any", "--nbd-crl", "crl.pem"],
      2,
      /--nbd-crl has no effect/,
    ],
    [
      "a certificate that is missing",
      ["a.img", "--nbd", "a.sock", "--nbd-cert", "none.pem"],
      1,
      /--nbd-cert: there is no file none\.pem/,
    ],
    [
      "a secret that is missing",
      ["s.img", "--bytes", "1MiB", "--nvme-tcp", "127.0.0.1:0", "--allow-host", "nqn.a=none.secret"],
      1,
      /--allow-host: ENOENT/,
    ],
    [
      "a secret that is none",
      ["s.img", "--bytes", "1MiB", "--nvme-tcp", "127.0.0.1:0", "--allow-host", "nqn.a=s.img"],
      1,
      /secret must be a secret as makeSecret gives it/,
    ],
    [
      "files of one name",
      ["x/d.img", "d.img", "--nbd", "d.sock"],
      2,
      /two disks are called "d\.img": give each a --name/,
    ],
    [
      "fewer names than files",
      ["d.img", "e.img", "--name", "d", "--nbd", "d.sock"],
      2,
      /give --name once for each FILE: there are 2, and 1 names/,
    ],
    [
      "one identity for several files",
      ["d.img", "e.img", "--uuid", "8b0f4b9c-0b0e-4d5e-9f4e-3a3f1c9d2b11", "--nbd", "d.sock"],
      2,
      /--uuid is for a single FILE: each disk has an identity of its own/,
    ],
    [
      "one file that is open, among others",
      ["d.img", "d.img", "--name", "a", "--name", "b", "--bytes", "1MiB", "--nbd", "d.sock"],
      1,
      /d\.img is open elsewhere/,
    ],
    ["a file that is missing", ["missing.img", "--nbd", "a.sock"], 1, /missing\.img: ENOENT/],
    [
      "a name that is none",
      ["b.img", "--bytes", "1MiB", "--nvme-tcp", "127.0.0.1:0", "--nqn", "x"],
      1,
      /an NVMe qualified/,
    ],
    [
      "a folder that is missing",
      ["c.img", "--bytes", "1MiB", "--nbd", "none/a.sock"],
      1,
      /serveNbd: cannot listen/,
    ],
  ])("refuses %s", async (_, args, status, complaint) => {
    const ended = await cinnabar(["disk", "serve", ...args], { cwd: folder });
    expect(ended).toMatchObject({ status, stdout: "" });
    expect(ended.stderr).toMatch(complaint);
    expect(ended.stderr.split("\n")).toHaveLength(2);
  });

  it("says what to install where the package is missing", async () => {
    // A copy of the package that has no other beside it.
    const copy = join(folder, "node_modules/cinnabar");
    await cp(join(program, "../../.."), join(copy, "dist"), { recursive: true });
    await cp(join(program, "../../../../package.json"), join(copy, "package.json"));
    const ended = await cinnabar(["disk", "serve", "d.img", "--bytes", "1MiB", "--nbd", "d.sock"], {
      cwd: folder,
      program: join(copy, "dist/cli/bin/cinnabar.js"),
    });
    expect(ended).toEqual({
      status: 1,
      stdout: "",
      stderr:
        "cinnabar disk: the package cinnabar-nvme is missing: install it beside cinnabar, in the same version\n",
    });
  });
});
