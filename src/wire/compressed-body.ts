/**
 * The block of a compressed body: sixteen bytes between the metadata of a frame and its body.
 *
 *   0  u8   format of the body; 0: it is not compressed. Only a request may say that
 *   1  u8   request: format that its answer may have; 0: none
 *   2  u16  zero
 *   4  u32  length of the body before it was compressed; 0 where it is not compressed
 *   8  u32  request: bytes from which on its answer may be compressed
 *   12 u32  zero
 */
export const compressionBlockBytes = 16;

/** How bodies are compressed. `deflate` is the zlib format of RFC 1950, `zstd` that of RFC 8878. */
export type CompressionFormat = "deflate" | "zstd";

/** The numbers of the formats. 0 stands for a body that is not compressed. */
export const formatNumbers = { deflate: 1, zstd: 2 } as const satisfies Record<CompressionFormat, number>;

/** What a block says. */
export interface CompressionBlock {
  /** Undefined: the body is not compressed. */
  readonly format: CompressionFormat | undefined;
  readonly plainBytes: number;
  /** Format that the answer may have. Undefined: none. */
  readonly answerFormat: CompressionFormat | undefined;
  readonly answerMinBytes: number;
}

/** The block of a body that is not compressed, and whose answer will not be. */
export const notCompressed: CompressionBlock = {
  format: undefined,
  plainBytes: 0,
  answerFormat: undefined,
  answerMinBytes: 0,
};

export function writeCompressionBlock(block: CompressionBlock): Uint8Array {
  const bytes = new Uint8Array(compressionBlockBytes);
  const view = new DataView(bytes.buffer);
  view.setUint8(0, numberOf(block.format));
  view.setUint8(1, numberOf(block.answerFormat));
  view.setUint32(4, block.plainBytes, true);
  view.setUint32(8, block.answerMinBytes, true);
  return bytes;
}

/**
 * The block at `start` of what ends at `end`, or a sentence that names the fault. `formats`: those that both sides
 * understand. `maxBytes`: the longest body that the receiver takes.
 */
export function readCompressionBlock(
  view: DataView,
  start: number,
  end: number,
  formats: readonly CompressionFormat[],
  maxBytes: number,
  isRequest: boolean,
): CompressionBlock | string {
  if (end - start < compressionBlockBytes)
    return `compression block has ${end - start} bytes, not ${compressionBlockBytes}`;
  const format = view.getUint8(start);
  const answerFormat = view.getUint8(start + 1);
  const plainBytes = view.getUint32(start + 4, true);
  const answerMinBytes = view.getUint32(start + 8, true);
  if (view.getUint16(start + 2, true) !== 0 || view.getUint32(start + 12, true) !== 0)
    return "compression block has bytes that must be zero";
  for (const number of [format, answerFormat])
    if (number !== 0 && !formats.some((known) => formatNumbers[known] === number))
      return `compression format ${number} was not agreed on`;
  if (!isRequest && (answerFormat !== 0 || answerMinBytes !== 0))
    return "compression block of an answer asks for an answer";
  if (format === 0 && (plainBytes !== 0 || !isRequest)) return "compression block names no format";
  if (format !== 0 && plainBytes === 0) return "compressed body states a length of 0";
  if (plainBytes > maxBytes) return `compressed body of ${plainBytes} bytes exceeds maxBodyBytes ${maxBytes}`;
  return { format: nameOf(format), plainBytes, answerFormat: nameOf(answerFormat), answerMinBytes };
}

function numberOf(format: CompressionFormat | undefined): number {
  return format === undefined ? 0 : formatNumbers[format];
}

function nameOf(number: number): CompressionFormat | undefined {
  return names.find((name) => formatNumbers[name] === number);
}

const names = Object.keys(formatNumbers) as CompressionFormat[];
