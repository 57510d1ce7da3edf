import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { bulk, type Engine, implement, type MappedFile, service, unary } from "cinnabar";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { fill, firstWrong } from "../bulk/support/pattern.ts";
import { pair } from "../matrix/pair.ts";
import { providers } from "../matrix/providers.ts";
import { deferred, failure } from "../matrix/wait.ts";

/** More than one piece of staging memory, and no multiple of a page. */
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

/** The engine that serves, and stops for what it is asked for before a put. */
let serving: Engine;
let beforePut: (signal: AbortSignal) => unknown = () => {};

const store = implement(Store, {
  async read({ from }, call) {
    const read = new Uint8Array(from.byteLength);
    await call.get(from, read);
    return read;
  },
  async write({ into, seed, checksum }, call) {
    const written = new Uint8Array(into.byteLength);
    fill(written, seed);
    await beforePut(call.signal);
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
  const opened = async (provider: (typeof verbs)[number], endsHard = false) => {
    const { api, client, server } = await pair(provider, [store], { endsHard });
    serving = server;
    const staged = () => [client.stats().counters.bytesStaged, server.stats().counters.bytesStaged];
    return { store: api(Store), client, server, staged };
  };
  let files = 0;

  it.each(verbs)("is read by peers in place, $name", async (provider) => {
    const { store, client, staged } = await opened(provider);
    for (const writable of [false, true]) {
      await using file = await client.mapFile(patterned(1), { access: "read", writable });
      expect(firstWrong(await store.read({ from: file }), 1)).toBe(-1);
    }
    expect(staged()).toEqual([0, 0]);
  });

  it.each(verbs)("is written by peers, by way of memory of its owner, $name", async (provider) => {
    const { store, client, staged } = await opened(provider);
    let all = 0;
    for (const access of ["write", "read_write"] as const) {
      for (const keys of ["call", "region"] as const) {
        const path = patterned(1);
        await using file = await client.mapFile(path, { access, keys });
        expect(await store.write({ into: file, seed: 2 })).toBe(bytes);
        await file.flush();
        expect(wrongIn(path, 2)).toBe(-1);
        if (access === "read_write")
          expect(firstWrong(await store.read({ from: file as MappedFile<"read_write"> }), 2)).toBe(-1);
        all += bytes;
        expect(staged()).toEqual([all, 0]);
      }
    }
  });

  it.each(verbs)("has slices, short puts and checksums, $name", async (provider) => {
    const { store, client, staged } = await opened(provider);
    await using file = await client.mapFile(patterned(1), { access: "read_write" });
    // In the request itself, and across a page.
    expect(await store.write({ into: file.slice(4000, 200), seed: 2 })).toBe(200);
    expect(await store.write({ into: file.slice(1_000_001, 100_000), seed: 3, checksum: true })).toBe(
      100_000,
    );
    expect([firstWrong(file.view(4000, 200), 2), firstWrong(file.view(1_000_001, 100_000), 3)]).toEqual([
      -1, -1,
    ]);
    expect([firstWrong(file.view(0, 4000), 1), staged()]).toEqual([-1, [100_200, 0]]);
  });

  it.each(verbs)("is source and destination of this side's transfers, $name", async (provider) => {
    const { store, client, staged } = await opened(provider);
    const memory = new Uint8Array(bytes);
    fill(memory, 3);
    using region = client.expose(memory, { access: "read_write" });
    const path = join(mounted, `${++files}`);
    expect(await store.save({ path, from: region })).toBe(bytes);
    expect(wrongIn(path, 3)).toBe(-1);
    expect(staged()).toEqual([0, bytes]);
    memory.fill(0);
    expect(await store.load({ path, into: region })).toBe(bytes);
    expect(firstWrong(memory, 3)).toBe(-1);
    // From one file into another: read in place here, written by its owner.
    const other = patterned(1);
    await using file = await client.mapFile(other, { access: "write" });
    expect(await store.load({ path, into: file })).toBe(bytes);
    await file.flush();
    expect(wrongIn(other, 3)).toBe(-1);
    expect(staged()).toEqual([bytes, bytes]);
  });

  it.each(verbs)("fails with data_loss where it was truncated, $name", async (provider) => {
    const { store, client } = await opened(provider, true);
    const path = patterned(1);
    await using file = await client.mapFile(path, { access: "write" });
    beforePut = () => truncateSync(path, 4096);
    try {
      expect(`${await failure(store.write({ into: file, seed: 2 }))}`).toContain("[data_loss]");
    } finally {
      beforePut = () => {};
    }
    expect(file.isDamaged).toBe(true);
  });

  it.each(verbs)("is not written after its owner has taken it back, $name", async (provider) => {
    const { store, client } = await opened(provider, true);
    const path = patterned(1);
    const file = await client.mapFile(path, { access: "write" });
    const begun = deferred();
    // The call is over for its caller when the handler puts.
    beforePut = (signal) => {
      begun.resolve();
      return new Promise((resolve) => signal.addEventListener("abort", resolve));
    };
    try {
      const writing = failure(store.write({ into: file, seed: 2 }));
      await begun.promise;
      expect(await file.revoke()).toEqual({ quarantinedBytes: 0 });
      expect(`${await writing}`).toContain("[aborted]");
    } finally {
      beforePut = () => {};
    }
    expect(wrongIn(path, 1)).toBe(-1);
  });

  it.each(verbs)("is lent by a handle, $name", async (provider) => {
    const { client, server, staged } = await opened(provider);
    const path = patterned(1);
    await using file = await server.mapFile(path, { access: "write" });
    {
      await using borrowed = await client.borrow(file.share());
      const memory = new Uint8Array(bytes);
      fill(memory, 4);
      expect(await borrowed.put(memory)).toBe(bytes);
    }
    await file.flush();
    expect([wrongIn(path, 4), staged()]).toEqual([-1, [0, bytes]]);
  });
});
