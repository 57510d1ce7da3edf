import { execFile } from "node:child_process";
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import type { RegionHandle } from "cinnabar";
import { afterAll, afterEach, describe, expect, it } from "vitest";
import { deferred } from "../matrix/wait.ts";
import { Files } from "./programs/mapped-file-service.ts";
import { Child } from "./support/child.ts";
import { fabricsAndNet, freshUrl, isDevice } from "./support/fabrics.ts";
import { endAllPeers, mebi, openEngine, outcome } from "./support/peers.ts";

const folder = mkdtempSync(join(tmpdir(), "mapped-"));
afterAll(() => rmSync(folder, { recursive: true }));
afterEach(endAllPeers);

/** Another process truncates the file. */
const truncate = (path: string, bytes: number) =>
  promisify(execFile)("truncate", ["--size", `${bytes}`, path]);

let files = 0;
const bytes = 16 * mebi;

async function startOwner(listen: string, launcher?: readonly [string, ...string[]]) {
  const path = join(folder, `${++files}`);
  const owner = new Child("mapped-file", { listen, path, bytes }, launcher && { launcher });
  const { urls } = await owner.report("listening");
  return { owner, path, url: urls[0] as string };
}

describe.each(fabricsAndNet.filter((fabric) => !isDevice(fabric)))("a mapped file over %s", (fabric) => {
  it("that another process truncates ends neither its owner nor a peer that reads and writes it", async () => {
    const { owner, path, url } = await startOwner(freshUrl(fabric));
    await owner.ask("map");
    const engine = await openEngine();
    const client = (await engine.connect(url)).client(Files);
    const borrowed = await engine.borrow((await client.share({})) as RegionHandle<"read_write">);
    const local = new Uint8Array(mebi);
    let moved = 0;
    let isCut = false;
    const begun = deferred();
    const moving = async () => {
      for (let offset = 0; ; offset = (offset + mebi) % bytes) {
        await borrowed.get(local, { offset });
        // The provider of tcp copies what it reads by itself, so the first transfers may move zeros.
        if (!isCut || fabric !== "tcp") expect(local.every((byte) => byte === 7)).toBe(true);
        else local.fill(7);
        await borrowed.put(local, { offset });
        if (++moved === 4) begun.resolve();
      }
    };
    const end = outcome(moving());
    await begun.promise;
    isCut = true;
    await truncate(path, mebi);
    // Where the owner meets the cut first, it takes the region back from the borrower. Over tcp its connection breaks
    // else. Where both sides make the next one at once, the owner's reason may be lost (docs/design/sessions.md).
    const ends = ["data_loss", "aborted", ...(fabric === "tcp" ? ["unavailable"] : [])];
    expect(ends).toContain(await end);
    expect(await owner.ask("isDamaged")).toBe(true);
    await expect(owner.ask("flush")).rejects.toThrow("[data_loss]");
    // It serves on.
    const again = await outcome((await engine.connect(url)).client(Files).share({}));
    expect(again).toBe("data_loss");
  });

  it("that was truncated, and has grown again, stays lost to peers that met the cut", async () => {
    const { owner, path, url } = await startOwner(freshUrl(fabric));
    await owner.ask("map");
    const engine = await openEngine();
    const share = async () =>
      engine.borrow(
        (await (await engine.connect(url)).client(Files).share({})) as RegionHandle<"read_write">,
      );
    const borrowed = await share();
    const local = new Uint8Array(mebi);
    await borrowed.get(local, { offset: 8 * mebi });
    await truncate(path, mebi);
    const first = await outcome(borrowed.get(local, { offset: 8 * mebi }));
    await truncate(path, bytes);
    // The peer of tcp has lost its connection with the refusal, and that of net the call that lent it the memory.
    expect(["data_loss", "aborted", "unavailable"]).toContain(first);
    const second = outcome(borrowed.get(local, { offset: 8 * mebi }));
    expect(["data_loss", "aborted", "unavailable"]).toContain(await second);
    expect(await owner.ask("isDamaged")).toBe(true);
    expect(await outcome(share())).toBe("data_loss");
  });
});

describe("the owner of a mapped file", () => {
  it("reads zeros, and stores, where another process has truncated it", async () => {
    const { owner, path } = await startOwner(freshUrl("shm"));
    await owner.ask("map");
    const scanned = owner.ask<{ went: boolean; last: number }>("scan");
    await owner.report("scanning");
    await truncate(path, mebi);
    expect(await scanned).toEqual({ went: true, last: (mebi / 4) * 0x07070707 });
    expect(await owner.ask("stats")).toMatchObject({ mappedFiles: { files: 1, bytes, damaged: 1 } });
    expect(statSync(path).size).toBe(mebi);
  });

  it("is refused what it may not have on the disk, and lives", async () => {
    // 2 MiB, or 4 with another shell.
    const { owner, path } = await startOwner(freshUrl("net"), ["sh", "-c", 'ulimit -f 4096; exec "$0" "$@"']);
    await expect(owner.ask("map")).rejects.toThrow("[resource_exhausted]");
    expect(() => statSync(path)).toThrow("ENOENT");
    expect(await owner.ask("urls")).toHaveLength(1);
  });
});
