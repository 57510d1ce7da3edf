import type { PackedRequest, ResolvedCompression } from "../../call/compression.ts";
import type { OutgoingCall } from "../../call/outgoing-call.ts";
import {
  type CompressionBlock,
  type CompressionFormat,
  notCompressed,
  readCompressionBlock,
  writeCompressionBlock,
} from "../../wire/compressed-body.ts";
import { encode } from "../../wire/encode-value.ts";
import { commonFormats, compress } from "../connection/compression.ts";
import type { SessionContext } from "../connection/context.ts";

/** A body as it will travel. */
export interface PackedBody {
  readonly bytes: Uint8Array;
  /** Its block; undefined where it is not compressed. */
  readonly block: Uint8Array | undefined;
}

const noBytes = new Uint8Array(0);

/** Compresses the bodies of one session's calls, and reads what their blocks say. */
export class BodyCompression {
  readonly #session: SessionContext;
  /** Those that both sides understand, best first. */
  readonly #formats: readonly CompressionFormat[];

  /** Undefined where the two sides have no format in common. */
  static of(session: SessionContext, features: readonly number[] = []): BodyCompression | undefined {
    const formats = commonFormats(session, features);
    return formats.length === 0 ? undefined : new BodyCompression(session, formats);
  }

  private constructor(session: SessionContext, formats: readonly CompressionFormat[]) {
    this.#session = session;
    this.#formats = formats;
  }

  /**
   * Makes the body of a request whose caller wants compression. Returns a promise while it is being compressed, which
   * does not reject. The request may be sent when `call.packed` is set.
   */
  packRequest(call: OutgoingCall, terms: ResolvedCompression, input: unknown): Promise<void> | undefined {
    const format = this.#formatFor(terms);
    if (format === undefined) return undefined;
    const { minBytes } = terms;
    const answer = { answerFormat: format, answerMinBytes: minBytes };
    const keep = (packed: PackedBody | undefined) => {
      const block = packed?.block ?? writeCompressionBlock({ ...notCompressed, ...answer });
      call.packed = { block, bytes: packed?.bytes };
    };
    const packed =
      input === undefined ? { bytes: noBytes, block: undefined } : this.pack(input, format, minBytes, answer);
    if (packed instanceof Promise) return packed.then(keep);
    keep(packed);
    return undefined;
  }

  /** Sealed bodies tell by their length what is in them, once they are compressed. */
  #formatFor({ format, sealed }: ResolvedCompression): CompressionFormat | undefined {
    if (this.#session.ciphers !== undefined && !sealed) return undefined;
    return this.#formats.includes(format) ? format : this.#formats.at(-1);
  }

  /**
   * The body of a value, compressed where it is longer than `minBytes`. Undefined where that cannot be said: the value
   * carries regions, cannot be encoded, or is too long for the peer. What sends it as it is says so.
   */
  pack(
    value: unknown,
    format: CompressionFormat,
    minBytes: number,
    answer: Partial<CompressionBlock> = {},
  ): PackedBody | Promise<PackedBody> | undefined {
    const session = this.#session;
    let bytes: Uint8Array;
    try {
      bytes = encode(value);
    } catch {
      return undefined;
    }
    const plainBytes = bytes.byteLength;
    if (plainBytes > session.bodyLimit) return undefined;
    const plain = { bytes, block: undefined };
    const { offers } = session.account;
    // As long as it is being compressed it counts as what the peer makes this side keep.
    if (plainBytes <= minBytes || session.state !== "open" || !offers.take(plainBytes)) return plain;
    return compress(format, bytes).then((packed) => {
      offers.give(plainBytes);
      session.services.progress.wake();
      if (packed === undefined) return plain;
      const { counters } = session.services;
      counters.bodiesCompressed++;
      counters.bytesBeforeCompression += plainBytes;
      counters.bytesAfterCompression += packed.byteLength;
      return {
        bytes: packed,
        block: writeCompressionBlock({ ...notCompressed, ...answer, format, plainBytes }),
      };
    });
  }

  /** What the block at `start` of a request says, or a sentence that names the fault. */
  readRequest(start: number, end: number): CompressionBlock | string {
    return this.#read(start, end, true);
  }

  /** The same of the answer to `packed`. */
  readAnswer(packed: PackedRequest | undefined, start: number, end: number): CompressionBlock | string {
    if (packed === undefined) return notAsked;
    return this.#read(start, end, false);
  }

  #read(start: number, end: number, isRequest: boolean): CompressionBlock | string {
    const { port, services } = this.#session;
    const { maxBodyBytes } = services.limits;
    return readCompressionBlock(port.slabView, start, end, this.#formats, maxBodyBytes, isRequest);
  }
}

/** The faults of blocks that must not be there. */
export const notAgreed = "a compressed body arrived, and no compression was agreed on";
const notAsked = "a compressed answer arrived to a request that does not take one";
