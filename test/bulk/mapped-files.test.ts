import {
  closeSync,
  existsSync,
  ftruncateSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  statfsSync,
  statSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { bulk, implement, type MappedFile, RpcError, service, unary } from "cinnabar";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { openEngine, pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { deferred, failure } from "../matrix/wait.ts";
import { fill, firstWrong } from "./support/pattern.ts";

const folder = mkdtempSync(join(tmpdir(), "mapped-"));
afterAll(() => rmSync(folder, { recursive: true }));

let files = 0;
const freshPath = () => join(folder, `${++files}`);

/** A file of `bytes` bytes of pattern 1. */
function patterned(bytes: number): string {
  const path = freshPath();
  const content = new Uint8Array(bytes);
  fill(content, 1);
  writeFileSync(path, content);
  return path;
}

const Store = service("store.v1", {
  /** Copies the region into the server's file. */
  save: unary({ input: z.object({ path: z.string(), from: bulk("read") }), output: z.number() }),
  /** Copies the server's file into the region. */
  load: unary({ input: z.object({ path: z.string(), into: bulk("write") }), output: z.number() }),
  read: unary({
    input: z.object({ from: bulk("read"), offset: z.number(), length: z.number() }),
    output: z.instanceof(Uint8Array),
  }),
  /** Writes pattern 2 into the region. */
  write: unary({ input: z.object({ into: bulk("write") }), output: z.number() }),
  /** Says that it has the region, and keeps it until the call ends. */
  keep: unary({ input: z.object({ region: bulk("read") }), output: z.number() }),
});

/** What happens to the file when a handler has its region; set by the test. */
let beforeGet = () => {};

const kept = { begun: deferred(), ended: deferred<unknown>() };

const store = implement(Store, {
  async save({ path, from }, call) {
    await using file = await engineOf(call).mapFile(path, { bytes: from.byteLength, access: "read" });
    await call.get(from, file);
    await file.flush();
    return file.byteLength;
  },
  async load({ path, into }, call) {
    await using file = await engineOf(call).mapFile(path, { access: "read", writable: false });
    return call.put(file, into);
  },
  async read({ from, offset, length }, call) {
    const bytes = new Uint8Array(length);
    beforeGet();
    await call.get(from, bytes, { offset });
    return bytes;
  },
  write({ into }, call) {
    const bytes = new Uint8Array(into.byteLength);
    fill(bytes, 2);
    return call.put(bytes, into);
  },
  async keep(_, call) {
    kept.begun.resolve();
    await new Promise((resolve) => call.signal.addEventListener("abort", resolve));
    kept.ended.resolve(call.signal.reason);
    return 0;
  },
});

/** The engine that serves; set by each test. */
let serving: Awaited<ReturnType<typeof openEngine>>;
const engineOf = (_call: unknown) => serving;

const codeOf = (error: unknown) => (error instanceof RpcError ? error.code : error);

describe.each(transports)("a mapped file over $name", (provider) => {
  const opened = async (endsHard = false) => {
    const { api, client, server } = await pair(provider, [store], { endsHard });
    serving = server;
    return { store: api(Store), client };
  };

  it("is read and written by peers, whole and in slices", async () => {
    const { store, client } = await opened();
    const path = patterned(300_000);
    const file = await client.mapFile(path, { access: "read_write" });
    expect(file.byteLength).toBe(300_000);
    expect(client.stats().mappedFiles).toEqual({ files: 1, bytes: 300_000, damaged: 0 });
    expect(firstWrong(await store.read({ from: file, offset: 0, length: 300_000 }), 1)).toBe(-1);
    await store.write({ into: file.slice(100_000, 1000) });
    expect(firstWrong(file.view(100_000, 1000), 2)).toBe(-1);
    await file.flush(100_000, 1000);
    const written = new Uint8Array(readFileSync(path));
    expect(firstWrong(written.subarray(100_000, 101_000), 2)).toBe(-1);
    expect(firstWrong(written.subarray(0, 100_000), 1)).toBe(-1);
    const view = file.bytes;
    await file[Symbol.asyncDispose]();
    expect([view.byteLength, file.isDamaged]).toEqual([0, false]);
    expect(client.stats().mappedFiles).toEqual({ files: 0, bytes: 0, damaged: 0 });
  });

  it("is source and destination of the handler's transfers", async () => {
    const { store, client } = await opened();
    const memory = new Uint8Array(600_000);
    fill(memory, 3);
    using region = client.expose(memory, { access: "read_write" });
    const path = freshPath();
    expect(await store.save({ path, from: region })).toBe(memory.byteLength);
    expect(firstWrong(new Uint8Array(readFileSync(path)), 3)).toBe(-1);
    memory.fill(0);
    expect(await store.load({ path, into: region })).toBe(memory.byteLength);
    expect(firstWrong(memory, 3)).toBe(-1);
  });

  it("that is truncated gives a peer no zeros for its bytes, and fails from then on", async () => {
    const { store, client } = await opened(true);
    const path = patterned(1 << 20);
    await using file = await client.mapFile(path, { access: "read_write" });
    await store.read({ from: file, offset: 3 << 18, length: 4096 });
    truncateSync(path, 1 << 18);
    const read = store.read({ from: file, offset: 3 << 18, length: 4096 });
    expect(codeOf(await failure(read))).toBe("data_loss");
    expect(file.isDamaged).toBe(true);
    // The process reads on.
    expect(firstWrong(file.view(0, 1 << 18), 1)).toBe(-1);
    expect(file.view(1 << 18).every((byte) => byte === 0)).toBe(true);
    truncateSync(path, 1 << 20);
    expect(codeOf(await failure(store.write({ into: file })))).toBe("data_loss");
    expect(codeOf(await failure(file.flush()))).toBe("data_loss");
    expect(() => file.slice(0, 1)).toThrow("has lost bytes");
    expect(client.stats().mappedFiles).toEqual({ files: 1, bytes: 1 << 20, damaged: 1 });
  });

  /**
   * Long enough that the kernel reads it from the file's pages, over tcp too: no signal tells its owner. A device has
   * pinned the pages, and reads what was in them.
   */
  it.skipIf(provider.scheme === "verbs").each([
    ["behind the cut", 1 << 20],
    ["across the cut", 0],
  ])("that is truncated gives a peer an error for much of it, %s", async (_, offset) => {
    const readAcrossCut = async () => {
      const { store, client } = await opened(true);
      const path = patterned(4 << 20);
      await using file = await client.mapFile(path, { access: "read" });
      beforeGet = () => truncateSync(path, 1 << 20);
      try {
        return await failure(store.read({ from: file, offset, length: (4 << 20) - offset }));
      } finally {
        beforeGet = () => {};
      }
    };
    let error = await readAcrossCut();
    // A message that was under way over tcp may be lost with the connection, and with it the owner's word.
    for (let again = 0; again < 5 && error.message.includes("messages were lost"); again++)
      error = await readAcrossCut();
    expect(codeOf(error)).toBe("data_loss");
  });

  it("ends the calls that hold it when this process meets what was cut off", async () => {
    const { store, client } = await opened(true);
    kept.begun = deferred();
    kept.ended = deferred();
    const path = patterned(1 << 20);
    await using file = await client.mapFile(path, { access: "read" });
    const call = failure(store.keep({ region: file }));
    await kept.begun.promise;
    truncateSync(path, 0);
    expect(file.view(5000, 1)[0]).toBe(0);
    expect(codeOf(await call)).toBe("data_loss");
    await kept.ended.promise;
  });

  it("fails the transfer of a handler whose own file is truncated", async () => {
    const { store, client } = await opened(true);
    const path = patterned(1 << 20);
    const memory = new Uint8Array(1 << 20);
    using region = client.expose(memory, { access: "read_write" });
    const file = await serving.mapFile(path, { access: "read" });
    const { mapFile } = serving;
    // The handler gets a file that was mapped before it was truncated.
    serving.mapFile = async () => file as MappedFile<never>;
    try {
      truncateSync(path, 4096);
      expect(codeOf(await failure(store.load({ path, into: region })))).toBe("data_loss");
    } finally {
      serving.mapFile = mapFile;
      file.dispose();
    }
  });
});

describe("mapFile", () => {
  let engine: Awaited<ReturnType<typeof openEngine>>;
  const open = async () => {
    engine = await openEngine();
    return engine;
  };
  const refusal = async (file: string | number, options: object) => {
    const mapping = engine.mapFile(file, { access: "read", ...options });
    return mapping.then(String, (error: unknown) => `${error}`);
  };

  it("creates a file with its space, and grows it by another mapping", async () => {
    await open();
    const path = freshPath();
    await using short = await engine.mapFile(path, { bytes: 1 << 20, access: "read" });
    expect(statSync(path).blocks * 512).toBeGreaterThanOrEqual(1 << 20);
    short.view(1000, 1)[0] = 7;
    await using long = await engine.mapFile(path, { bytes: 3 << 20, access: "read" });
    expect([statSync(path).size, long.view(1000, 1)[0]]).toEqual([3 << 20, 7]);
    long.view(2000, 1)[0] = 8;
    expect([short.view(2000, 1)[0], short.isDamaged]).toEqual([8, false]);
  });

  it("gives no view of a file that was disposed or revoked", async () => {
    const engine = await openEngine();
    const disposed = await engine.mapFile(join(folder, "disposed"), { access: "read", bytes: 4096 });
    disposed.dispose();
    expect(() => disposed.view(0)).toThrow(
      expect.objectContaining({
        code: "failed_precondition",
        plainMessage: "the region has been disposed",
      }),
    );
    const revoked = await engine.mapFile(join(folder, "revoked"), { access: "read", bytes: 4096 });
    await revoked.revoke();
    expect(() => revoked.view(0, 16)).toThrow("the region has been revoked");
  });

  it("takes a descriptor, which may be closed, of a file without a name", async () => {
    await open();
    const path = patterned(10_000);
    const descriptor = openSync(path, "r+");
    const mapping = engine.mapFile(descriptor, { access: "read" });
    closeSync(descriptor);
    rmSync(path);
    await using file = await mapping;
    expect(firstWrong(file.bytes, 1)).toBe(-1);
    await file.flush();
  });

  it("keeps to itself what is stored in a file that is not writable", async () => {
    await open();
    const path = patterned(10_000);
    await using file = await engine.mapFile(path, { access: "read", writable: false });
    file.bytes.fill(0);
    expect(firstWrong(new Uint8Array(readFileSync(path)), 1)).toBe(-1);
    expect(`${await failure(file.flush())}`).toContain("failed_precondition");
  });

  it("refuses a full disk at the start, and leaves nothing behind", async () => {
    await open();
    const { blocks, bsize } = statfsSync("/dev/shm");
    const path = `/dev/shm/mapped-${process.pid}`;
    const refused = await refusal(path, { bytes: (blocks + 1) * bsize });
    expect(refused).toContain("[resource_exhausted]");
    expect(refused).toContain("posix_fallocate failed: ENOSPC");
    expect(existsSync(path)).toBe(false);
  });

  it("says what is wrong with a file", async () => {
    await open();
    expect(await refusal(freshPath(), {})).toContain("[not_found]");
    expect(await refusal(folder, {})).toContain("[invalid_argument]");
    expect(await refusal("/dev/null", {})).toContain("is neither a file nor a device DAX");
    expect(await refusal(patterned(0), {})).toContain("is empty: name its length with the option bytes");
    expect(await refusal(patterned(100), { bytes: 101, writable: false })).toContain("[out_of_range]");
    expect(await refusal(1 << 20, {})).toContain("fstat failed: EBADF");
    expect(await refusal("", {})).toContain("TypeError: mapFile: file must be a path or a file descriptor");
    expect(await refusal(patterned(1), { bytes: 0 })).toContain("RangeError: mapFile: bytes must be");
    expect(await refusal(patterned(1), { size: 0 })).toContain("TypeError: mapFile: unknown option");
    const readable = openSync(patterned(100), "r");
    expect(await refusal(readable, {})).toContain("EBADF");
    closeSync(readable);
    await engine.close();
    expect(await refusal(patterned(100), {})).toContain("[unavailable]");
  });
});

describe("a file of more than 4 GiB", () => {
  const border = 2 ** 32;
  const length = border + (1 << 20);
  let path: string;
  beforeAll(() => {
    path = freshPath();
    const descriptor = openSync(path, "w");
    // A hole but for 2,000 bytes on both sides of the border.
    ftruncateSync(descriptor, length);
    const content = new Uint8Array(4000);
    fill(content, 1);
    writeSync(descriptor, content, 0, 4000, border - 2000);
    closeSync(descriptor);
  });

  it("has two segments, views across their border, and slices that peers read", async () => {
    const shm = transports.find(({ scheme }) => scheme === "shm") ?? transports[0];
    const { api, client } = await pair(shm as (typeof transports)[number], [store]);
    const file = await client.mapFile(path, { access: "read", writable: false });
    expect(file.segments.map(({ byteLength }) => byteLength)).toEqual([border, 1 << 20]);
    const view = file.view(border - 2000, 4000);
    expect(firstWrong(view, 1)).toBe(-1);
    view[1] = 200;
    expect(file.segments[0]?.[border - 1999]).toBe(200);
    const slice = file.slice(border - 1000, 3000);
    expect(slice.segments).toHaveLength(2);
    const read = await api(Store).read({ from: slice, offset: 0, length: 3000 });
    expect(Buffer.compare(read.subarray(0, 3000), file.view(border - 1000, 3000))).toBe(0);
    expect(() => file.view(0, 2 ** 31 + 1)).toThrow("more than a view can have");
    expect(() => file.view(length, 1)).toThrow("do not lie inside");
    await file[Symbol.asyncDispose]();
    expect(view.byteLength).toBe(0);
  });
});
