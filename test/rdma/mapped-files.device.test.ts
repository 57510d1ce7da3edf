import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { bulk, type Engine, implement, service, unary } from "cinnabar";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { fill, firstWrong } from "../bulk/support/pattern.ts";
import { pair } from "../matrix/pair.ts";
import { providers } from "../matrix/providers.ts";
import { failure } from "../matrix/wait.ts";

/** No multiple of a page. */
const bytes = 2_500_000;
const Store = service("store.v1", {
  read: unary({ input: z.object({ from: bulk("read") }), output: z.instanceof(Uint8Array) }),
  write: unary({
    input: z.object({ into: bulk("write"), seed: z.number(), checksum: z.boolean().optional() }),
    output: z.number(),
  }),
  /** Copies the region into the server's file, or the file into the region. */
  save: unary({ input: z.object({ path: z.string(), from: bulk("read") }), output: z.number() }),
  load: unary({ input: z.object({ path: z.string(), into: bulk("write") }), output: z.number() }),
});

/** The engine that serves. */
let serving: Engine;

const store = implement(Store, {
  async read({ from }, call) {
    const read = new Uint8Array(from.byteLength);
    await call.get(from, read);
    return read;
  },
  async write({ into, seed, checksum }, call) {
    const written = new Uint8Array(into.byteLength);
    fill(written, seed);
    return call.put(written, into, checksum === true ? { checksum: "crc32c" } : {});
  },
  async save({ path, from }, call) {
    await using file = await serving.mapFile(path, { bytes: from.byteLength, access: "read" });
    await call.get(from, file);
    await file.flush();
    return file.byteLength;
  },
  async load({ path, into }, call) {
    await using file = await serving.mapFile(path, { access: "read" });
    return call.put(file, into);
  },
});

const verbs = providers.filter(({ scheme }) => scheme === "verbs");

/** The other files of tests lie on tmpfs, whose pages devices may pin. */
describe.skipIf(verbs.length === 0)("a file of ext4, in the page cache", () => {
  const folder = mkdtempSync(join(tmpdir(), "mapped-ext4-"));
  const mounted = join(folder, "mnt");
  let device = "";
  beforeAll(() => {
    const image = join(folder, "image");
    mkdirSync(mounted);
    execFileSync("mkfs.ext4", ["-q", image, "64M"]);
    device = execFileSync("losetup", ["--find", "--show", image], { encoding: "utf8" }).trim();
    execFileSync("mount", [device, mounted]);
  });
  afterAll(() => {
    execFileSync("umount", [mounted]);
    execFileSync("losetup", ["--detach", device]);
    rmSync(folder, { recursive: true });
  });

  const patterned = (seed: number, length = bytes): string => {
    const path = join(mounted, `${++files}`);
    const content = new Uint8Array(length);
    fill(content, seed);
    writeFileSync(path, content);
    return path;
  };
  const wrongIn = (path: string, seed: number) => firstWrong(new Uint8Array(readFileSync(path)), seed);
  const opened = async (provider: (typeof verbs)[number]) => {
    const { api, client, server } = await pair(provider, [store]);
    serving = server;
    return { store: api(Store), client, server };
  };
  let files = 0;
  const refused = {
    code: "unimplemented",
    message: expect.stringContaining(
      "the device pins no pages of a file for writing: use memory of engine.pool and copy",
    ),
  };

  it.each(verbs)("is read by peers in place, $name", async (provider) => {
    const { store, client } = await opened(provider);
    for (const writable of [false, true]) {
      for (const keys of ["call", "region"] as const) {
        await using file = await client.mapFile(patterned(1), { access: "read", writable, keys });
        expect(firstWrong(await store.read({ from: file }), 1)).toBe(-1);
      }
    }
  });

  it.each(verbs)(
    "is granted to nobody who may write it, and the error says what to do, $name",
    async (provider) => {
      const { store, client } = await opened(provider);
      for (const access of ["write", "read_write"] as const) {
        const path = patterned(1);
        await using file = await client.mapFile(path, { access });
        expect(await failure(store.write({ into: file, seed: 2 }))).toMatchObject(refused);
        expect(wrongIn(path, 1)).toBe(-1);
        await using readable = await client.mapFile(path, { access: "read" });
        expect(firstWrong(await store.read({ from: readable }), 1)).toBe(-1);
      }
    },
  );

  it.each(verbs)("takes bytes by a copy from registered memory, $name", async (provider) => {
    const { store, client } = await opened(provider);
    const path = patterned(1);
    await using file = await client.mapFile(path, { access: "read" });
    using memory = client.pool.take(bytes, { access: "write" });
    expect(await store.write({ into: memory.region, seed: 2, checksum: true })).toBe(bytes);
    file.view(0, bytes).set(memory.bytes);
    await file.flush();
    expect(wrongIn(path, 2)).toBe(-1);
  });

  it.each(verbs)(
    "is the source of this side's puts, and refused as the destination of its gets, $name",
    async (provider) => {
      const { store, client } = await opened(provider);
      const memory = new Uint8Array(bytes);
      using region = client.expose(memory, { access: "read_write" });
      const path = patterned(3);
      expect(await store.load({ path, into: region })).toBe(bytes);
      expect(firstWrong(memory, 3)).toBe(-1);
      memory.fill(0);
      expect(await failure(store.save({ path, from: region }))).toMatchObject(refused);
      expect(wrongIn(path, 3)).toBe(-1);
    },
  );

  it.each(verbs)("fails with data_loss where it was truncated, $name", async (provider) => {
    const { store, client } = await opened(provider);
    const path = patterned(1);
    await using file = await client.mapFile(path, { access: "read" });
    truncateSync(path, 4096);
    expect(`${await failure(store.read({ from: file }))}`).toContain("[data_loss]");
    expect(file.isDamaged).toBe(true);
  });

  it.each(verbs)("is lent by a handle, $name", async (provider) => {
    const { client, server } = await opened(provider);
    await using file = await server.mapFile(patterned(4), { access: "read" });
    await using borrowed = await client.borrow(file.share());
    const memory = new Uint8Array(bytes);
    expect(await borrowed.get(memory)).toBe(bytes);
    expect(firstWrong(memory, 4)).toBe(-1);
  });
});
