import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { type ConnectionOptions, connect as connectTls } from "node:tls";
import type { BlockDevice } from "../device/block-device.ts";
import { ByteReader } from "../socket/byte-reader.ts";
import { Exports } from "./exports.ts";
import { magic, option, optionReply } from "./protocol.ts";

/** The path of the socket in the URI of a server. */
export const pathOf = (uri: string): string => new URL(uri).searchParams.get("socket") ?? "";

export function optionMessage(number: number, data: Buffer = Buffer.alloc(0)): Buffer {
  const head = Buffer.alloc(16);
  head.writeBigUInt64BE(magic.option, 0);
  head.writeUInt32BE(number, 8);
  head.writeUInt32BE(data.length, 12);
  return Buffer.concat([head, data]);
}

const uint16 = (value: number) => Buffer.from([value >> 8, value & 255]);
export function uint32(value: number): Buffer {
  const field = Buffer.alloc(4);
  field.writeUInt32BE(value);
  return field;
}
export const named = (name: string) => Buffer.concat([uint32(Buffer.byteLength(name)), Buffer.from(name)]);
export const goMessage = (name: string, wanted: readonly number[] = [3], number: number = option.go) =>
  optionMessage(number, Buffer.concat([named(name), uint16(wanted.length), ...wanted.map(uint16)]));
export const contextMessage = (
  queries: readonly string[],
  number: number = option.setMetaContext,
  name = "disk",
) => optionMessage(number, Buffer.concat([named(name), uint32(queries.length), ...queries.map(named)]));

/** What a server has that serves one device. */
export const oneExport = (device: BlockDevice, name = "disk") =>
  new Exports("test", new Map([[name, device]]));

export interface RequestFields {
  readonly type: number;
  readonly flags?: number;
  readonly cookie?: number;
  readonly offset?: number | bigint;
  readonly bytes?: number;
}

export function requestMessage({
  type,
  flags = 0,
  cookie = 1,
  offset = 0,
  bytes = 0,
}: RequestFields): Buffer {
  const head = Buffer.alloc(28);
  head.writeUInt32BE(magic.request, 0);
  head.writeUInt16BE(flags, 4);
  head.writeUInt16BE(type, 6);
  head.writeBigUInt64BE(BigInt(cookie), 8);
  head.writeBigUInt64BE(BigInt(offset), 16);
  head.writeUInt32BE(bytes, 24);
  return head;
}

export interface Chunk {
  readonly flags: number;
  readonly type: number;
  readonly cookie: number;
  readonly payload: Buffer;
}

/** A client that sends the messages of a test and reads the answers. */
export class NbdClient {
  #socket: Socket;
  #reader: ByteReader;

  private constructor(socket: Socket) {
    this.#socket = socket;
    this.#reader = new ByteReader(socket);
  }

  get socket(): Socket {
    return this.#socket;
  }

  /** @param localAddress where it comes from, for a server at a port */
  static async connect(uri: string, localAddress = "127.0.0.1"): Promise<NbdClient> {
    const { hostname, port } = new URL(uri);
    const socket =
      port === "" ? connect(pathOf(uri)) : connect({ host: hostname, port: Number(port), localAddress });
    socket.on("error", () => {});
    await once(socket, "connect");
    return new NbdClient(socket);
  }

  /** Connects and goes through the handshake. */
  static async open(
    uri: string,
    {
      isStructured = true,
      hasAllocation = true,
      name = "disk",
      localAddress,
      tls,
    }: {
      isStructured?: boolean;
      hasAllocation?: boolean;
      name?: string;
      localAddress?: string;
      tls?: ConnectionOptions;
    } = {},
  ): Promise<NbdClient> {
    const client = await NbdClient.connect(uri, localAddress);
    await client.greet();
    if (tls !== undefined) await client.startTls(tls);
    if (isStructured) {
      client.send(optionMessage(option.structuredReply));
      await client.acknowledged();
      if (hasAllocation) {
        client.send(contextMessage(["base:allocation"], option.setMetaContext, name));
        await client.acknowledged();
      }
    }
    client.send(goMessage(name));
    await client.acknowledged();
    return client;
  }

  /** Asks for TLS, and begins it. Resolves although the server may yet refuse the certificate. */
  async startTls(options: ConnectionOptions): Promise<void> {
    this.send(optionMessage(option.startTls));
    await this.acknowledged();
    await this.beginTls(options);
  }

  /** Begins TLS, whatever the server has answered. */
  async beginTls(options: ConnectionOptions): Promise<void> {
    this.#reader.release();
    const secured = connectTls({ ...options, socket: this.#socket });
    secured.on("error", () => {});
    this.#socket = secured;
    this.#reader = new ByteReader(secured);
    await once(secured, "secureConnect");
  }

  send(...parts: readonly Buffer[]): void {
    this.socket.write(Buffer.concat(parts));
  }

  /** The next bytes; throws where the connection ends before. */
  async take(bytes: number): Promise<Buffer> {
    const taken = Buffer.alloc(bytes);
    if (!(await this.#reader.readInto(taken))) throw new Error("the server ended the connection");
    return taken;
  }

  /** Resolves when the server has ended the connection. */
  async ended(): Promise<void> {
    this.socket.resume();
    // Not `once` of events, which rejects where the server has left bytes unread.
    if (!this.socket.closed) await new Promise((resolve) => this.socket.once("close", resolve));
  }

  async greet(flags = 3): Promise<Buffer> {
    const greeting = await this.take(18);
    this.send(uint32(flags));
    return greeting;
  }

  async optionReply(): Promise<{ option: number; type: number; data: Buffer }> {
    const head = await this.take(20);
    if (head.readBigUInt64BE(0) !== magic.optionReply) throw new Error("no reply to an option");
    const data = await this.take(head.readUInt32BE(16));
    return { option: head.readUInt32BE(8), type: head.readUInt32BE(12), data };
  }

  /** Reads the replies to an option. Rejects where the last one is an error. */
  async acknowledged(): Promise<void> {
    for (;;) {
      const { option: number, type } = await this.optionReply();
      if (type === optionReply.ack) return;
      if (type >= 2 ** 31) throw new Error(`the server answered option ${number} with ${type.toString(16)}`);
    }
  }

  async simple(dataBytes = 0): Promise<{ error: number; cookie: number; data: Buffer }> {
    const head = await this.take(16);
    if (head.readUInt32BE(0) !== magic.simpleReply) throw new Error("no simple reply");
    const error = head.readUInt32BE(4);
    const data = await this.take(error === 0 ? dataBytes : 0);
    return { error, cookie: Number(head.readBigUInt64BE(8)), data };
  }

  async chunk(): Promise<Chunk> {
    const head = await this.take(20);
    if (head.readUInt32BE(0) !== magic.chunk) throw new Error("no chunk");
    const payload = await this.take(head.readUInt32BE(16));
    return {
      flags: head.readUInt16BE(4),
      type: head.readUInt16BE(6),
      cookie: Number(head.readBigUInt64BE(8)),
      payload,
    };
  }

  /** A request and the error number of its answer, with structured replies. */
  async errorOf(request: RequestFields, data: Buffer = Buffer.alloc(0)): Promise<number> {
    this.send(requestMessage(request), data);
    for (;;) {
      const { flags, type, payload } = await this.chunk();
      if (type === 0x8001) return payload.readUInt32BE(0);
      if ((flags & 1) !== 0) return 0;
    }
  }

  /** Reads with structured replies. */
  async read(offset: number, bytes: number): Promise<Buffer> {
    this.send(requestMessage({ type: 0, offset, bytes }));
    const data = Buffer.alloc(bytes);
    for (;;) {
      const { flags, type, payload } = await this.chunk();
      if (type !== 1) throw new Error(`a chunk of type ${type}`);
      payload.copy(data, Number(payload.readBigUInt64BE(0)) - offset, 8);
      if ((flags & 1) !== 0) return data;
    }
  }
}
