import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { bulk, implement, service, unary } from "cinnabar";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { fill, firstWrong } from "../bulk/support/pattern.ts";
import { pair } from "../matrix/pair.ts";
import { providers } from "../matrix/providers.ts";
import { failure } from "../matrix/wait.ts";

const bytes = 300_000;
const Store = service("store.v1", {
  read: unary({ input: z.object({ from: bulk("read") }), output: z.instanceof(Uint8Array) }),
  write: unary({ input: z.object({ into: bulk("write") }), output: z.number() }),
});
const store = implement(Store, {
  async read({ from }, call) {
    const read = new Uint8Array(from.byteLength);
    await call.get(from, read);
    return read;
  },
  write({ into }, call) {
    const written = new Uint8Array(into.byteLength);
    fill(written, 2);
    return call.put(written, into);
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
    execFileSync("mkfs.ext4", ["-q", image, "16M"]);
    device = execFileSync("losetup", ["--find", "--show", image], { encoding: "utf8" }).trim();
    execFileSync("mount", [device, mounted]);
  });
  afterAll(() => {
    execFileSync("umount", [mounted]);
    execFileSync("losetup", ["--detach", device]);
    rmSync(folder, { recursive: true });
  });

  it.each(verbs)("is read by peers in place, and granted to none for writing, $name", async (provider) => {
    const { api, client } = await pair(provider, [store]);
    const path = join(mounted, "file");
    const content = new Uint8Array(bytes);
    fill(content, 1);
    writeFileSync(path, content);
    {
      await using file = await client.mapFile(path, { access: "read", writable: false });
      expect(firstWrong(await api(Store).read({ from: file }), 1)).toBe(-1);
    }
    {
      await using file = await client.mapFile(path, { access: "write" });
      expect(`${await failure(api(Store).write({ into: file }))}`).toContain("[unimplemented]");
    }
    // By way of the pool.
    using memory = client.pool.take(bytes, { access: "write" });
    await api(Store).write({ into: memory.region });
    await using file = await client.mapFile(path, { access: "read" });
    file.bytes.set(memory.bytes);
    await file.flush();
    expect(firstWrong(new Uint8Array(readFileSync(path)), 2)).toBe(-1);
    expect(firstWrong(await api(Store).read({ from: file }), 2)).toBe(-1);
  });
});
