import { readFileSync } from "node:fs";
import { open } from "node:fs/promises";
import { crc32 } from "node:zlib";
import { Engine, type EngineOptions, implement, type RpcError } from "cinnabar";
import { BulkStream, readable } from "cinnabar-bulk";
import { engineCommands, obey, settings, tell } from "./commands.ts";
import { Memory } from "./memory-service.ts";

const options = settings<Pick<EngineOptions, "listen" | "heartbeatMs" | "connectTimeoutMs">>();

/** The most memory this process has had resident, file pages it maps included. */
function peakBytes(): number {
  return Number(/VmHWM:\s+(\d+) kB/.exec(readFileSync("/proc/self/status", "utf8"))?.[1]) * 1024;
}

const shared: Uint8Array[] = [];

const serve = implement(Memory, {
  share({ bytes, value }) {
    const memory = new Uint8Array(bytes).fill(value);
    shared.push(memory);
    return engine.expose(memory, { access: "read_write" }).share();
  },
  stall({ ms }) {
    const [written, read] = shared.map((memory) => new Int32Array(memory.buffer)) as [Int32Array, Int32Array];
    const at = written.length - 1;
    const first = Atomics.load(written, at);
    let counted = 0;
    for (const until = performance.now() + ms; performance.now() < until; ) Atomics.store(read, 0, ++counted);
    return { first, last: Atomics.load(written, at), counted };
  },
  async pull({ from, forEver }) {
    const local = new Uint8Array(from.byteLength);
    let sum = 0;
    try {
      await using borrowed = await engine.borrow(from);
      do {
        await borrowed.get(local);
        sum = local.reduce((total, byte) => total + byte, 0);
        tell("pulled");
      } while (forEver);
      return { code: "", sum };
    } catch (error) {
      return { code: (error as RpcError).code, sum };
    }
  },
  async store({ path, data }, call) {
    const file = await open(path, "w");
    let bytes = 0;
    let crc = 0;
    try {
      for await (const piece of readable(call, data)) {
        await file.write(piece);
        crc = crc32(piece, crc);
        bytes += piece.byteLength;
      }
    } finally {
      await file.close();
    }
    return { bytes, crc, peakBytes: peakBytes() };
  },
});

const engine: Engine = await Engine.open({ ...options, serve: [serve] });

obey({
  ...engineCommands(engine),
  /** Sends a file to another process, which stores it. */
  async send({ url, from, to }: { url: string; from: string; to: string }) {
    const peer = await engine.connect(url);
    const data = new BulkStream(engine, "read");
    const stored = peer.client(Memory).store({ path: to, data });
    const file = await open(from);
    let crc = 0;
    try {
      const writer = data.writable.getWriter();
      for await (const piece of file.createReadStream({ highWaterMark: 1 << 20 })) {
        crc = crc32(piece, crc);
        await writer.write(piece);
      }
      await writer.close();
    } finally {
      await file.close();
    }
    return { stored: await stored, crc, peakBytes: peakBytes() };
  },
});
tell("listening", { urls: engine.urls });
