import { Duplex } from "node:stream";
import { expect, it } from "vitest";
import { ByteWriter } from "./byte-writer.ts";

/** A socket that takes what it is given when the test says so. */
class SlowSocket extends Duplex {
  readonly given: Uint8Array[] = [];
  accept: () => void = () => {};
  override _read(): void {}
  override _write(part: Buffer, _encoding: string, done: () => void): void {
    this.#give([part], done);
  }
  override _writev(parts: { chunk: Buffer }[], done: () => void): void {
    const chunks = parts.map(({ chunk }) => chunk);
    this.#give(chunks, done);
  }
  #give(parts: Buffer[], done: () => void): void {
    this.given.push(...parts);
    this.accept = done;
  }
}

const turn = () => new Promise(setImmediate);
const filled = (bytes: number, value: number) => Buffer.alloc(bytes, value);

it("sends the short parts of a turn as one, and long ones as they are", async () => {
  const socket = new SlowSocket();
  const writer = new ByteWriter(socket);
  const long = filled(100_000, 3);
  const told: number[] = [];
  writer.write([filled(24, 1), filled(4096, 2)], () => told.push(1));
  writer.write([long], () => told.push(2));
  for (let index = 0; index < 20; index++) writer.write([filled(4096, 4 + index)]);
  expect(socket.given).toEqual([]);
  expect(writer.isPending).toBe(true);
  await turn();
  expect(socket.given.map(({ length }) => length)).toEqual([4120, 100_000, 16 * 4096, 4 * 4096]);
  expect(socket.given[1]?.buffer).toBe(long.buffer);
  const expected = [filled(24, 1), filled(4096, 2), long];
  for (let index = 0; index < 20; index++) expected.push(filled(4096, 4 + index));
  expect(Buffer.concat(socket.given).equals(Buffer.concat(expected))).toBe(true);
  expect(told).toEqual([]);
  socket.accept();
  await turn();
  expect(told).toEqual([1, 2]);
  expect(writer.isPending).toBe(false);
});

it("uses the memory of what it has joined again when the socket has taken it, and not before", async () => {
  const socket = new SlowSocket();
  const writer = new ByteWriter(socket);
  const write = async (value: number) => {
    writer.write([filled(8, value), filled(8, value)]);
    await turn();
    return socket.given.at(-1) as Uint8Array;
  };
  const first = await write(1);
  const afterFirst = socket.accept;
  writer.write([filled(8, 2), filled(8, 2)]);
  await turn();
  expect(Buffer.from(first).equals(filled(16, 1))).toBe(true);
  afterFirst();
  await turn();
  const second = socket.given.at(-1) as Uint8Array;
  expect(second.buffer).not.toBe(first.buffer);
  expect(Buffer.from(second).equals(filled(16, 2))).toBe(true);
  socket.accept();
  await turn();
  expect([first.buffer, second.buffer]).toContain((await write(3)).buffer);
});

it("tells those whose parts are not sent any more", async () => {
  const socket = new SlowSocket();
  const writer = new ByteWriter(socket);
  let told = 0;
  writer.write([filled(8, 1)], () => told++);
  socket.destroy();
  await turn();
  expect(told).toBe(1);
  writer.write([filled(8, 1)], () => told++);
  expect(told).toBe(2);
  expect(socket.given).toEqual([]);
});
