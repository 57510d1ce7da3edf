import { setImmediate as turn } from "node:timers/promises";
import type { BlockDevice } from "../device/block-device.ts";
import type { Channel } from "./channel.ts";
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
  /** Reads are answered by chunks. */
  readonly isStructured: boolean;
  /** The client asked for `base:allocation`. */
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
  readonly #device: BlockDevice;
  readonly #name: string;
  readonly #admit: () => boolean;
  #isStructured = false;
  #hasAllocation = false;

  /** @param admit takes a place among the connections; false: all are taken */
  constructor(channel: Channel, device: BlockDevice, name: string, admit: () => boolean) {
    this.#channel = channel;
    this.#device = device;
    this.#name = name;
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
        if (channel.tls === "required" || !this.#isExport(data.toString("utf8"))) return undefined;
        if (!this.#admit()) return undefined;
        const zeroes = (clientFlags & handshakeFlag.noZeroes) === 0 ? 124 : 0;
        channel.writer.write([Buffer.concat([this.#sizeAndFlags(), Buffer.alloc(zeroes)])]);
        return this.#agreement();
      }
      const step = this.#answer(number, data);
      if (step === "end") return undefined;
      if (step === "go") return this.#agreement();
      if (step === "tls" && !(await channel.startTls())) return undefined;
      // A client that does not read its answers gets no more of them, and one that floods options lets others run.
      await channel.writer.flushed();
      await turn();
    }
  }

  /** Answers an option, and returns the next step. */
  #answer(number: number, data: Buffer): "next" | "go" | "end" | "tls" {
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
        const name = Buffer.from(this.#name);
        this.#reply(number, optionReply.server, Buffer.concat([uint32(name.length), name]));
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

  #describe(number: number, data: Buffer): "next" | "go" | "end" {
    const fields = new Fields(data);
    const name = fields.text();
    const count = fields.uint16();
    const wanted = Array.from({ length: Math.min(count, fields.left / 2) }, () => fields.uint16());
    if (!fields.isWhole || wanted.length !== count)
      return this.#refuse(number, optionReply.invalid, "the lengths in the option do not fit its length");
    if (!this.#isExport(name))
      return this.#refuse(number, optionReply.unknown, "this server has no export of that name");
    if (number === option.go && !this.#admit()) {
      this.#refuse(number, optionReply.policy, "this server serves as many connections as it may");
      return "end";
    }
    this.#reply(number, optionReply.info, Buffer.concat([uint16(info.export), this.#sizeAndFlags()]));
    if (wanted.includes(info.name))
      this.#reply(number, optionReply.info, Buffer.concat([uint16(info.name), Buffer.from(this.#name)]));
    // Any offset and any length are served. Whole blocks take the device the least work.
    const sizes = [1, Math.max(this.#device.blockBytes, 4096), maxRequestBytes].map(uint32);
    if (wanted.includes(info.blockSize))
      this.#reply(number, optionReply.info, Buffer.concat([uint16(info.blockSize), ...sizes]));
    this.#reply(number, optionReply.ack);
    return number === option.go ? "go" : "next";
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
    if (!this.#isExport(name))
      return this.#refuse(number, optionReply.unknown, "this server has no export of that name");
    const isList = number === option.listMetaContext;
    const has = queries.includes(allocationName) || (isList && (count === 0 || queries.includes("base:")));
    if (has) {
      const context = [uint32(isList ? 0 : allocationContext), Buffer.from(allocationName)];
      this.#reply(number, optionReply.metaContext, Buffer.concat(context));
    }
    if (!isList) this.#hasAllocation = has;
    this.#reply(number, optionReply.ack);
    return "next";
  }

  #agreement(): Agreement {
    return { isStructured: this.#isStructured, hasAllocation: this.#hasAllocation };
  }

  /** The empty name means the default export. */
  #isExport(name: string): boolean {
    return name === "" || name === this.#name;
  }

  #sizeAndFlags(): Buffer {
    const { bytes, isReadOnly } = this.#device;
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
