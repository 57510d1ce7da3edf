import { execFileSync } from "node:child_process";
import {
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from "node:fs";
import { connect, createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { parseUrl } from "../libfabric/url.ts";
import { NetPort } from "./net-port.ts";

const layout = { sendSlots: 16, sendDepth: 16, receiveSlots: 8, slotBytes: 64 * 1024, receiveDepth: 8 };

let folder: string;
let path: string;
const ports: NetPort[] = [];
const servers: Server[] = [];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "socket-file-"));
  path = join(folder, "app.sock");
});

afterEach(async () => {
  for (const port of ports.splice(0)) port.close();
  await Promise.all(servers.splice(0).map((server) => new Promise((resolve) => server.close(resolve))));
  rmSync(folder, { recursive: true });
});

async function listen(): Promise<NetPort> {
  const port = await NetPort.listen(parseUrl(`net+unix://${path}`), layout);
  ports.push(port);
  return port;
}

/** A server of another program. */
async function foreignServer(at: string): Promise<Server> {
  const server = createServer((socket) => socket.destroy());
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(at, resolve));
  return server;
}

/** A process that is killed while it listens at `at`. */
function leaveDeadSocket(at: string): void {
  const program = `require("net").createServer().listen(${JSON.stringify(at)}, () => process.kill(process.pid, "SIGKILL"))`;
  expect(() => execFileSync(process.execPath, ["-e", program], { stdio: "pipe" })).toThrow();
  expect(lstatSync(at).isSocket()).toBe(true);
}

const answers = (at: string) =>
  new Promise<boolean>((resolve) => {
    const socket = connect(at, () => socket.destroy());
    socket.on("error", () => resolve(false));
    socket.on("close", (hadError) => resolve(!hadError));
  });

const inUse = (why: string) => ({ code: "already_exists", message: expect.stringContaining(why) });

describe("a port at a path", () => {
  it("lets this user alone connect, and leaves nothing when it closes", async () => {
    const port = await listen();
    expect(lstatSync(path).mode & 0o777).toBe(0o600);
    expect(lstatSync(`${path}.lock`).mode & 0o777).toBe(0o700);
    expect(readdirSync(folder).sort()).toEqual(["app.sock", "app.sock.lock"]);
    port.close();
    expect(readdirSync(folder)).toEqual([]);
  });

  it.each<[string, () => void, string]>([
    ["a file", () => writeFileSync(path, "precious"), "not a socket"],
    ["a folder", () => mkdirSync(path), "not a socket"],
    ["a fifo", () => execFileSync("mkfifo", [path]), "not a socket"],
    ["a symlink to nothing", () => symlinkSync(join(folder, "nothing"), path), "not a socket"],
    [
      "a symlink to a dead socket",
      () => {
        leaveDeadSocket(join(folder, "other"));
        symlinkSync(join(folder, "other"), path);
      },
      "not a socket",
    ],
    ["a file in the place of its lock", () => writeFileSync(`${path}.lock`, "precious"), "not a folder"],
    [
      "a symlink in the place of its lock",
      () => {
        mkdirSync(join(folder, "other"));
        leaveDeadSocket(join(folder, "other", "a"));
        symlinkSync(join(folder, "other"), `${path}.lock`);
      },
      "not a folder",
    ],
    [
      "a file in its lock",
      () => {
        mkdirSync(`${path}.lock`);
        writeFileSync(join(`${path}.lock`, "a"), "precious");
      },
      "holds",
    ],
  ])("leaves %s alone", async (_, make, why) => {
    make();
    const before = readdirSync(folder, { recursive: true }).sort();
    await expect(listen()).rejects.toMatchObject(inUse(why));
    expect(readdirSync(folder, { recursive: true }).sort()).toEqual(before);
  });

  it("keeps what lies at its path, byte by byte", async () => {
    writeFileSync(path, "precious");
    await expect(listen()).rejects.toMatchObject({ code: "already_exists" });
    expect(readFileSync(path, "utf8")).toBe("precious");
  });

  it("does not take the path of a living server, of Cinnabar or not", async () => {
    await foreignServer(path);
    await expect(listen()).rejects.toMatchObject(inUse("a living process listens there"));
    expect(await answers(path)).toBe(true);
    await new Promise((resolve) => servers.pop()?.close(resolve));
    await listen();
    await expect(listen()).rejects.toMatchObject(inUse(`a living process holds ${path}.lock`));
    expect(await answers(path)).toBe(true);
  });

  it("replaces what killed processes have left: the socket, and the lock", async () => {
    mkdirSync(`${path}.lock`);
    leaveDeadSocket(join(`${path}.lock`, "a"));
    linkSync(join(`${path}.lock`, "a"), path);
    leaveDeadSocket(join(`${path}.lock`, "b"));
    const port = await listen();
    expect(await answers(path)).toBe(true);
    port.close();
    expect(readdirSync(folder)).toEqual([]);
  });

  it("belongs to one of ten that start at once where a dead socket lies", async () => {
    for (let round = 0; round < 5; round++) {
      leaveDeadSocket(path);
      const started = await Promise.allSettled(Array.from({ length: 10 }, listen));
      const refused = started.filter(({ status }) => status === "rejected");
      expect(refused).toHaveLength(9);
      for (const { reason } of refused as PromiseRejectedResult[])
        expect(reason).toMatchObject({ code: "already_exists" });
      expect(await answers(path)).toBe(true);
      expect(readdirSync(folder).sort()).toEqual(["app.sock", "app.sock.lock"]);
      for (const port of ports.splice(0)) port.close();
      expect(readdirSync(folder)).toEqual([]);
    }
  });

  it("leaves the socket of its successor when it closes", async () => {
    const port = await listen();
    // A script removes the file, as some do before they start a server.
    unlinkSync(path);
    await foreignServer(path);
    port.close();
    expect(await answers(path)).toBe(true);

    await new Promise((resolve) => servers.pop()?.close(resolve));
    const first = await listen();
    rmSync(path);
    rmSync(`${path}.lock`, { recursive: true });
    const second = await listen();
    first.close();
    expect(await answers(path)).toBe(true);
    second.close();
    expect(existsSync(path)).toBe(false);
  });
});
