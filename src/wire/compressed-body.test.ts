import { describe, expect, it } from "vitest";
import {
  type CompressionBlock,
  compressionBlockBytes,
  notCompressed,
  readCompressionBlock,
  writeCompressionBlock,
} from "./compressed-body.ts";

const asking: CompressionBlock = {
  format: "zstd",
  plainBytes: 70_000,
  answerFormat: "deflate",
  answerMinBytes: 65_536,
};
const answer: CompressionBlock = { ...notCompressed, format: "deflate", plainBytes: 9 };

const read = (
  bytes: Uint8Array,
  { isRequest = true, maxBytes = 1e6, formats = ["zstd", "deflate"] as const } = {},
) => readCompressionBlock(new DataView(bytes.buffer), 0, bytes.byteLength, formats, maxBytes, isRequest);

/** A block with one byte changed. */
const changed = (block: CompressionBlock, at: number, byte: number): Uint8Array => {
  const bytes = writeCompressionBlock(block);
  bytes[at] = byte;
  return bytes;
};

describe("the block of a compressed body", () => {
  it("says of requests and answers what was written", () => {
    expect(read(writeCompressionBlock(asking))).toEqual(asking);
    const wish = { ...notCompressed, answerFormat: "zstd", answerMinBytes: 1 } as const;
    expect(read(writeCompressionBlock(wish))).toEqual(wish);
    expect(read(writeCompressionBlock(answer), { isRequest: false })).toEqual(answer);
  });

  it.each<[string, Uint8Array, Parameters<typeof read>[1], string]>([
    ["cut off", writeCompressionBlock(asking).slice(0, 15), {}, "has 15 bytes, not 16"],
    ["of an unknown format", changed(asking, 0, 3), {}, "compression format 3 was not agreed on"],
    ["that asks for an unknown format", changed(asking, 1, 9), {}, "compression format 9 was not agreed on"],
    [
      "of a format that one side lacks",
      writeCompressionBlock(asking),
      { formats: ["deflate"] as never },
      "compression format 2 was not agreed on",
    ],
    ["with something in its gap", changed(asking, 3, 1), {}, "bytes that must be zero"],
    ["with something at its end", changed(asking, 15, 1), {}, "bytes that must be zero"],
    ["with a length and no format", changed(asking, 0, 0), {}, "names no format"],
    [
      "of an answer that is not compressed",
      writeCompressionBlock(notCompressed),
      { isRequest: false },
      "names no format",
    ],
    ["of an answer that asks", writeCompressionBlock(asking), { isRequest: false }, "asks for an answer"],
    ["of nothing", writeCompressionBlock({ ...answer, plainBytes: 0 }), {}, "states a length of 0"],
    [
      "of more than its receiver takes",
      writeCompressionBlock(asking),
      { maxBytes: 69_999 },
      "compressed body of 70000 bytes exceeds maxBodyBytes 69999",
    ],
  ])("is refused when it is one %s", (_, bytes, how, fault) => {
    expect(read(bytes, how)).toContain(fault);
  });

  it("takes as much room as it says", () => {
    expect(writeCompressionBlock(asking).byteLength).toBe(compressionBlockBytes);
  });
});
