import { setImmediate as turn } from "node:timers/promises";
import type { BlockDevice } from "../device/block-device.ts";
import type { Channel } from "./channel.ts";
import type { Export, Exports } from "./exports.ts";
import {
  handshakeFlag,
  info,
  magic,
  maxNameBytes,
  maxOptionBytes,
  maxRequestBytes,
  option,
  optionReply,
  transmissionFlag,
} from "./protocol.ts";

/** What client and server agreed on. */
export interface Agreement {
  /** The disk that the client has chosen. */
  readonly device: BlockDevice;
  /** Reads are answered by chunks. */
  readonly isStructured: boolean;
  /** The client asked for `base:allocation` of this disk. */
  readonly hasAllocation: boolean;
}

/** The number of the context `base:allocation`. */
export const allocationContext = 1;
const allocationName = "base:allocation";

/**
 * The fixed newstyle handshake, the server's side. With certificates it is what the protocol calls FORCEDTLS: every
 * option before TLS is refused, so that an attacker on the network path cannot set an option.
 */
export class Handshake {
  readonly #channel: Channel;
  readonly #exports: Exports;
  readonly #admit: () => boolean;
  #isStructured = false;
  /** The disk for which the client asked for `base:allocation`. */
  #allocationOf: BlockDevice | undefined;

  /** @param admit takes a place among the connections; false: all are taken */
  constructor(channel: Channel, exports: Exports, admit: () => boolean) {
    this.#channel = channel;
    this.#exports = exports;
    this.#admit = admit;
  }

  /** Resolves when the client goes on to transmission; to undefined where the connection is to end. */
  async run(): Promise<Agreement | undefined> {
    const greeting = Buffer.alloc(18);
    greeting.writeBigUInt64BE(magic.greeting, 0);
    greeting.writeBigUInt64BE(magic.option, 8);
    const flags = handshakeFlag.fixedNewstyle | handshakeFlag.noZeroes;
    greeting.writeUInt16BE(flags, 16);
    const channel = this.#channel;
    channel.writer.write([greeting]);
    const clientFlags = (await channel.reader.read(4))?.readUInt32BE(0);
    if (clientFlags === undefined || (clientFlags & ~flags) !== 0) return undefined;
    // Such a client cannot ask for TLS.
    if (channel.tls === "required" && (clientFlags & handshakeFlag.fixedNewstyle) === 0) return undefined;
    for (;;) {
      const head = await channel.reader.read(16);
      if (head === undefined || head.readBigUInt64BE(0) !== magic.option) return undefined;
      const number = head.readUInt32BE(8);
      const bytes = head.readUInt32BE(12);
      if (bytes > maxOptionBytes) return undefined;
      const data = bytes === 0 ? Buffer.alloc(0) : await channel.reader.readRest(bytes);
      if (data === undefined) return undefined;
      if (number === option.exportName) {
        // The option has no form of an error.
        const chosen = this.#exports.find(data.toString("utf8"));
        if (channel.tls === "required" || chosen === undefined || !this.#admit()) return undefined;
        const zeroes = (clientFlags & handshakeFlag.noZeroes) === 0 ? 124 : 0;
        channel.writer.write([Buffer.concat([this.#sizeAndFlags(chosen), Buffer.alloc(zeroes)])]);
        return this.#agreement(chosen);
      }
      const step = this.#answer(number, data);
      if (step === "end") return undefined;
      if (typeof step === "object") return this.#agreement(step);
      if (step === "tls" && !(await channel.startTls())) return undefined;
      // A client that does not read its answers gets no more of them, and one that floods options lets others run.
      await channel.writer.flushed();
      await turn();
    }
  }

  /** Answers an option, and returns the next step: an export is what transmission begins with. */
  #answer(number: number, data: Buffer): "next" | "end" | "tls" | Export {
    if (number === option.abort) {
      this.#reply(number, optionReply.ack);
      return "end";
    }
    if (number === option.startTls) return this.#answerStartTls(data);
    if (this.#channel.tls === "required")
      return this.#refuse(number, optionReply.tlsRequired, "this server requires TLS");
    switch (number) {
      case option.list: {
        if (data.length > 0) return this.#refuse(number, optionReply.invalid, "the option LIST has no data");
        for (const { name } of this.#exports.all) {
          const bytes = Buffer.from(name);
          this.#reply(number, optionReply.server, Buffer.concat([uint32(bytes.length), bytes]));
        }
        this.#reply(number, optionReply.ack);
        return "next";
      }
      case option.info:
      case option.go:
        return this.#describe(number, data);
      case option.structuredReply:
        if (data.length > 0)
          return this.#refuse(number, optionReply.invalid, "the option STRUCTURED_REPLY has no data");
        this.#isStructured = true;
        this.#reply(number, optionReply.ack);
        return "next";
      case option.listMetaContext:
      case option.setMetaContext:
        return this.#contexts(number, data);
      default:
        return this.#refuse(number, optionReply.unsupported, "this server does not know the option");
    }
  }

  #answerStartTls(data: Buffer): "next" | "tls" {
    const number = option.startTls;
    const { tls } = this.#channel;
    if (tls === "none") return this.#refuse(number, optionReply.policy, "this server has no certificate");
    if (tls === "done") return this.#refuse(number, optionReply.invalid, "the connection has TLS already");
    if (data.length > 0) return this.#refuse(number, optionReply.invalid, "the option STARTTLS has no data");
    this.#reply(number, optionReply.ack);
    return "tls";
  }

  #describe(number: number, data: Buffer): "next" | "end" | Export {
    const fields = new Fields(data);
    const name = fields.text();
    const count = fields.uint16();
    const wanted = Array.from({ length: Math.min(count, fields.left / 2) }, () => fields.uint16());
    if (!fields.isWhole || wanted.length !== count)
      return this.#refuse(number, optionReply.invalid, "the lengths in the option do not fit its length");
    const chosen = this.#exports.find(name);
    if (chosen === undefined) return this.#refuse(number, optionReply.unknown, this.#exports.lackOf(name));
    if (number === option.go && !this.#admit()) {
      this.#refuse(number, optionReply.policy, "this server serves as many connections as it may");
      return "end";
    }
    this.#reply(number, optionReply.info, Buffer.concat([uint16(info.export), this.#sizeAndFlags(chosen)]));
    if (wanted.includes(info.name))
      this.#reply(number, optionReply.info, Buffer.concat([uint16(info.name), Buffer.from(chosen.name)]));
    // Any offset and any length are served. Whole blocks take the device the least work.
    const sizes = [1, Math.max(chosen.device.blockBytes, 4096), maxRequestBytes].map(uint32);
    if (wanted.includes(info.blockSize))
      this.#reply(number, optionReply.info, Buffer.concat([uint16(info.blockSize), ...sizes]));
    this.#reply(number, optionReply.ack);
    return number === option.go ? chosen : "next";
  }

  #contexts(number: number, data: Buffer): "next" {
    const fields = new Fields(data);
    const name = fields.text();
    const count = fields.uint32();
    // A query takes four bytes at least, so a count that is too large ends here.
    const queries = Array.from({ length: Math.min(count, fields.left / 4) }, () => fields.text());
    if (!fields.isWhole || queries.length !== count)
      return this.#refuse(number, optionReply.invalid, "the lengths in the option do not fit its length");
    if (!this.#isStructured)
      return this.#refuse(number, optionReply.invalid, "contexts need structured replies first");
    const chosen = this.#exports.find(name);
    if (chosen === undefined) return this.#refuse(number, optionReply.unknown, this.#exports.lackOf(name));
    const isList = number === option.listMetaContext;
    const has = queries.includes(allocationName) || (isList && (count === 0 || queries.includes("base:")));
    if (has) {
      const context = [uint32(isList ? 0 : allocationContext), Buffer.from(allocationName)];
      this.#reply(number, optionReply.metaContext, Buffer.concat(context));
    }
    if (!isList) this.#allocationOf = has ? chosen.device : undefined;
    this.#reply(number, optionReply.ack);
    return "next";
  }

  #agreement({ device }: Export): Agreement {
    return { device, isStructured: this.#isStructured, hasAllocation: this.#allocationOf === device };
  }

  #sizeAndFlags({ device: { bytes, isReadOnly } }: Export): Buffer {
    const flag = transmissionFlag;
    const always = flag.hasFlags | flag.flush | flag.fua | flag.canMultiConn;
    const writes = isReadOnly ? flag.readOnly : flag.trim | flag.writeZeroes | flag.fastZero;
    const field = Buffer.alloc(10);
    field.writeBigUInt64BE(BigInt(bytes), 0);
    field.writeUInt16BE(always | writes | (this.#isStructured ? flag.df : 0), 8);
    return field;
  }

  #refuse(number: number, type: number, why: string): "next" {
    this.#reply(number, type, Buffer.from(why));
    return "next";
  }

  #reply(number: number, type: number, data: Buffer = Buffer.alloc(0)): void {
    const head = Buffer.alloc(20);
    head.writeBigUInt64BE(magic.optionReply, 0);
    head.writeUInt32BE(number, 8);
    head.writeUInt32BE(type, 12);
    head.writeUInt32BE(data.length, 16);
    this.#channel.writer.write([head, data]);
  }
}

/** The fields of an option, one after another. Missing fields are 0 or empty, and `isWhole` is false. */
class Fields {
  readonly #data: Buffer;
  #at = 0;
  #isShort = false;

  constructor(data: Buffer) {
    this.#data = data;
  }

  /** Every field was there, and nothing follows. */
  get isWhole(): boolean {
    return !this.#isShort && this.left === 0;
  }

  get left(): number {
    return this.#data.length - this.#at;
  }

  uint16(): number {
    return this.#has(2) ? this.#data.readUInt16BE(this.#at - 2) : 0;
  }

  uint32(): number {
    return this.#has(4) ? this.#data.readUInt32BE(this.#at - 4) : 0;
  }

  /** A length and as many bytes. */
  text(): string {
    const bytes = this.uint32();
    if (bytes > maxNameBytes) this.#isShort = true;
    return this.#has(bytes) ? this.#data.toString("utf8", this.#at - bytes, this.#at) : "";
  }

  #has(bytes: number): boolean {
    if (this.#isShort || bytes > this.left) this.#isShort = true;
    else this.#at += bytes;
    return !this.#isShort;
  }
}

function uint16(value: number): Buffer {
  const field = Buffer.alloc(2);
  field.writeUInt16BE(value);
  return field;
}

function uint32(value: number): Buffer {
  const field = Buffer.alloc(4);
  field.writeUInt32BE(value);
  return field;
}
