import * as zlib from "node:zlib";
import { hasZstd } from "../../call/compression.ts";
import { isNodeScheme, type Scheme } from "../../fabric/libfabric/url.ts";
import type { Port } from "../../fabric/port.ts";
import { staysOnHost } from "../../security/securable.ts";
import type { CompressionFormat } from "../../wire/compressed-body.ts";
import { feature } from "../../wire/handshake.ts";
import type { EngineServices } from "./engine-services.ts";

/*
 * Which bodies may be compressed, and how: by Node's zlib, in threads of libuv. Each body is one job with one buffer for
 * all that comes out of it. With zlib's default of 16 KiB, a long body takes hundreds of turns of the event loop.
 */

/** The formats that this Node has, best first. */
const ownFormats: readonly CompressionFormat[] = hasZstd ? ["zstd", "deflate"] : ["deflate"];

/** A session as far as it decides what is compressed. */
interface CompressingSession {
  readonly port: Pick<Port, "scheme">;
  readonly services: Pick<EngineServices, "compression">;
}

/** The formats that this side takes in a session. Within a host nothing is won by compression. */
function takenFormats({ port, services }: CompressingSession): readonly CompressionFormat[] {
  return services.compression && !staysOnHost(port.scheme) ? ownFormats : [];
}

/** Whether a port of the scheme may be one of a device, which pins the memory that peers write. */
function pinsMemory(scheme: Scheme): boolean {
  return scheme === "verbs" || isNodeScheme(scheme);
}

/** The features that this side names in a session. */
export function featuresOf(session: CompressingSession): readonly number[] {
  const formats = takenFormats(session).map((format) => feature[format]);
  return [feature.executed, ...formats, ...(pinsMemory(session.port.scheme) ? [feature.putsByRequest] : [])];
}

/** The formats that both sides of a session take, best first. */
export function commonFormats(
  session: CompressingSession,
  features: readonly number[],
): readonly CompressionFormat[] {
  return takenFormats(session).filter((format) => features.includes(feature[format]));
}

type Done = (error: Error | null, result: Buffer) => void;
type DoneWithInfo = (
  error: Error | null,
  result: { readonly buffer: Buffer; readonly engine: { readonly bytesWritten: number } },
) => void;

interface ZstdOptions {
  readonly chunkSize: number;
  readonly maxOutputLength: number;
  readonly info?: boolean;
  readonly params: Readonly<Record<number, number>>;
}

/** What Node 22.15 and 23.8 have, and the types of Node 20 do not. */
interface Zstd {
  readonly zstdCompress: (bytes: Uint8Array, options: ZstdOptions, done: Done) => void;
  readonly zstdDecompress: (bytes: Uint8Array, options: ZstdOptions, done: DoneWithInfo) => void;
  readonly constants: { readonly ZSTD_c_windowLog: number; readonly ZSTD_d_windowLogMax: number };
}
const zstd = zlib as unknown as Zstd;

/** Levels above it take twice the time for some percent. */
const deflateLevel = 3;
/** The least chunk of zlib. */
const leastChunkBytes = 64;
/** The windows of zstd, as powers of two: the least that there is, the one of its default level, the largest taken. */
const leastWindow = 10;
const usualWindow = 21;
const mostWindow = 23;

/** The bytes in less than they are, or undefined: they do not shrink. Never rejects. */
export function compress(format: CompressionFormat, bytes: Uint8Array): Promise<Uint8Array | undefined> {
  const maxOutputLength = Math.max(1, bytes.byteLength - 1);
  const chunkSize = Math.max(leastChunkBytes, bytes.byteLength);
  return new Promise((resolve) => {
    const done: Done = (error, result) => resolve(error === null ? result : undefined);
    try {
      if (format === "deflate")
        zlib.deflate(bytes, { level: deflateLevel, chunkSize, maxOutputLength }, done);
      else {
        const window = Math.min(usualWindow, windowOf(bytes.byteLength));
        const params = { [zstd.constants.ZSTD_c_windowLog]: window };
        zstd.zstdCompress(bytes, { chunkSize, maxOutputLength, params }, done);
      }
    } catch {
      // There is no memory for it.
      resolve(undefined);
    }
  });
}

/**
 * What was compressed to `bytes`, or undefined where that is not exactly `plainBytes` long, or anything else is wrong
 * with it. Takes no more memory than `decompressionBytes`. Never rejects.
 */
export function decompress(
  format: CompressionFormat,
  bytes: Uint8Array,
  plainBytes: number,
): Promise<Buffer | undefined> {
  // One more, so that a second buffer is not begun when the first is full.
  const chunkSize = Math.max(leastChunkBytes, plainBytes + 1);
  return new Promise((resolve) => {
    const done: DoneWithInfo = (error, result) => {
      const isWhole =
        error === null &&
        result.buffer.byteLength === plainBytes &&
        result.engine.bytesWritten === bytes.byteLength;
      resolve(isWhole ? result.buffer : undefined);
    };
    const options = { chunkSize, maxOutputLength: plainBytes, info: true };
    try {
      if (format === "deflate") zlib.inflate(bytes, options, done as unknown as Done);
      else {
        const params = { [zstd.constants.ZSTD_d_windowLogMax]: windowOf(plainBytes) };
        zstd.zstdDecompress(bytes, { ...options, params }, done);
      }
    } catch {
      resolve(undefined);
    }
  });
}

/** How much memory it takes to decompress a body. */
export function decompressionBytes(format: CompressionFormat, plainBytes: number): number {
  return plainBytes + (format === "zstd" ? 2 ** windowOf(plainBytes) : deflateStateBytes);
}

/** What zlib takes to inflate: its window of 32 KiB and some tables. */
const deflateStateBytes = 48 * 1024;

/** The window of zstd for a body of this length: the power of two that holds it, up to 8 MiB. */
function windowOf(plainBytes: number): number {
  return Math.min(mostWindow, Math.max(leastWindow, Math.ceil(Math.log2(plainBytes))));
}
