import { setImmediate as turn } from "node:timers/promises";
import { implement, type RemoteRegion, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { isLong } from "../matrix/long.ts";
import { pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { seeded } from "../matrix/random.ts";
import { isSecured } from "../matrix/secured.ts";
import { fill, firstWrong } from "./support/pattern.ts";

const Extremes = service("extremes.v1", { run: unary({ input: z.unknown(), output: z.unknown() }) });
type Run = Parameters<typeof implement<typeof Extremes>>[1]["run"];
const doing = (run: Run) => implement(Extremes, { run });
const regionOf = (input: unknown) => (input as { region: RemoteRegion<"read_write"> }).region;

const kibi = 1024;
const mebi = 1024 * kibi;
const gibi = 1024 * mebi;
/** For what moves much on a slow machine. */
const patient = { timeoutMs: 120_000 };
const checksum = "crc32c";

/** So many pieces of odd lengths that begin at odd places, with a byte between them at least. */
function oddPieces(count: number, random: () => number): { memory: Uint8Array; views: Uint8Array[] } {
  const lengths = Array.from({ length: count }, () => 1 + 2 * Math.floor(random() * 96));
  const memory = new Uint8Array(lengths.reduce((sum, length) => sum + length + 3, 1)).fill(0xcc);
  let at = 1;
  const views = lengths.map((length) => {
    const view = memory.subarray(at, at + length);
    at += length + 1;
    return view;
  });
  return { memory, views };
}

const bytesOf = (views: readonly Uint8Array[]) => views.reduce((sum, { length }) => sum + length, 0);

describe.each(transports)("transfers at their limits over $name", (provider) => {
  it("move 1,024 pieces of odd lengths into 1,024 others, and no byte between them", async () => {
    const random = seeded(1024);
    const { api, client } = await pair(provider, [
      doing(async (input, call) => {
        const region = regionOf(input);
        const { memory, views } = oddPieces(1024, random);
        // The last piece takes what the others leave.
        const rest = region.byteLength - bytesOf(views.slice(1));
        const all = [new Uint8Array(rest), ...views.slice(1)];
        await call.get(region, all, { checksum });
        const got = Uint8Array.from(Buffer.concat(all));
        fill(got, 2);
        let at = 0;
        for (const view of all) {
          view.set(got.subarray(at, at + view.length));
          at += view.length;
        }
        await call.put(all, region, { checksum });
        return { between: memory.filter((byte) => byte === 0xcc).length, wrong: firstWrong(got, 2) };
      }),
    ]);
    const { memory, views } = oddPieces(1024, random);
    for (const view of views) view.fill(1);
    // More than any of the handler's has, so that it can take 1,023 of them and a rest.
    const tail = new Uint8Array(256 * kibi + 1);
    using region = client.expose([...views, tail], { access: "read_write" });
    await api(Extremes, patient).run({ region });
    expect(firstWrong(Uint8Array.from(Buffer.concat([...views, tail])), 2)).toBe(-1);
    let inside = 0;
    for (const view of views) {
      inside += view.length;
      view.fill(0xcc);
    }
    expect(inside).toBe(bytesOf(views));
    expect(memory.every((byte) => byte === 0xcc || byte === 0)).toBe(true);
  });

  it("are 1,000 in flight: all arrive, and none of the long ones is left behind", async () => {
    const longs = 8;
    const longBytes = 2 * mebi;
    const shorts = 992;
    const shortBytes = 4 * kibi + 1;
    const { api, client } = await pair(provider, [
      doing(async (input, call) => {
        const region = regionOf(input);
        const memory = new Uint8Array(region.byteLength);
        const get = (offset: number, bytes: number) =>
          call.get(region, memory.subarray(offset, offset + bytes), { offset, chunkBytes: 64 * kibi });
        const long = Array.from({ length: longs }, (_, index) => get(index * longBytes, longBytes));
        const short = Array.from({ length: shorts }, (_, index) =>
          get(longs * longBytes + index * shortBytes, shortBytes),
        );
        const moved = new Array<number>(longs).fill(0);
        for (const [index, one] of long.entries())
          void (async () => {
            for await (const { bytes } of one.progress) moved[index] = bytes;
          })();
        await Promise.race(long);
        const atFirstEnd = [...moved];
        await Promise.all([...long, ...short]);
        return { wrong: firstWrong(memory, 5), atFirstEnd };
      }),
    ]);
    const memory = new Uint8Array(longs * longBytes + shorts * shortBytes);
    fill(memory, 5);
    using region = client.expose(memory, { access: "read_write" });
    const { wrong, atFirstEnd } = (await api(Extremes, patient).run({ region })) as {
      wrong: number;
      atFirstEnd: number[];
    };
    expect(wrong).toBe(-1);
    // Chunks take turns, so all are about as far when the first ends. Sealed pieces have turns of their own.
    if (!isSecured) expect(Math.min(...atFirstEnd)).toBeGreaterThan(longBytes / 2);
  });

  it("move memory that was never touched, both ways", async () => {
    const bytes = 2 * mebi + 3;
    const { api, client } = await pair(provider, [
      doing(async (input, call) => {
        const region = regionOf(input);
        const cold = new Uint8Array(bytes);
        await call.get(region, cold, { length: bytes, checksum });
        const isZero = cold.every((byte) => byte === 0);
        const pattern = new Uint8Array(bytes);
        fill(pattern, 9);
        await call.put(pattern, region, { offset: bytes, checksum });
        return isZero;
      }),
    ]);
    const memory = new Uint8Array(2 * bytes);
    using region = client.expose(memory, { access: "read_write" });
    expect(await api(Extremes, patient).run({ region })).toBe(true);
    expect(firstWrong(memory.subarray(bytes), 9)).toBe(-1);
  });

  it("read memory that its owner writes meanwhile: each byte is an old or a new one", async () => {
    const bytes = 2 * mebi + 1;
    let writes = true;
    const { api, client } = await pair(provider, [
      doing(async (input, call) => {
        const region = regionOf(input);
        const copy = new Uint8Array(bytes);
        for (let round = 0; round < 3; round++) {
          await call.get(region, copy, { chunkBytes: 64 * kibi });
          if (!copy.every((byte) => byte === 1 || byte === 2)) return "a byte that nobody wrote";
        }
        writes = false;
        await turn();
        await call.get(region, copy, { checksum });
        return Buffer.compare(copy, memory) === 0 ? "the same" : "another";
      }),
    ]);
    const memory = new Uint8Array(bytes).fill(1);
    using region = client.expose(memory, { access: "read_write" });
    const answer = api(Extremes, patient).run({ region });
    const random = seeded(7);
    for (; writes; await turn()) {
      const at = Math.floor(random() * bytes);
      memory.fill(2, at, at + 1000);
    }
    expect(await answer).toBe("the same");
  });

  // Untouched pages take no memory, so what the long form needs are 2 GiB and not 9. A device pins all of them.
  const isHuge = isLong && provider.carriesLargest;
  const piece = isHuge ? gibi : 8 * mebi;
  it.skipIf(isHuge && isSecured)(
    `move ${piece / mebi} MiB in a region of eight times that, across the ends of its pieces`,
    async () => {
      const offset = 6.5 * piece + 1;
      const { api, client } = await pair(provider, [
        doing(async (input, call) => {
          const region = regionOf(input);
          const copy = new Uint8Array(piece);
          await call.get(region, copy, { offset, checksum });
          const found = [copy[0], copy[piece / 2 - 1], copy[piece - 1]];
          copy[1] = 4;
          copy[piece - 2] = 5;
          await call.put(copy, region, { offset: offset - 2 * piece, checksum });
          return found;
        }),
      ]);
      const pieces = Array.from({ length: 8 }, () => new Uint8Array(piece));
      const byteAt = (at: number) => ({ within: pieces[Math.floor(at / piece)], index: at % piece });
      const write = (at: number, value: number) => {
        const { within, index } = byteAt(at);
        if (within !== undefined) within[index] = value;
      };
      const read = (at: number) => byteAt(at).within?.[byteAt(at).index];
      write(offset, 1);
      write(offset + piece / 2 - 1, 2);
      write(offset + piece - 1, 3);
      using region = client.expose(pieces, { access: "read_write" });
      expect(region.byteLength).toBe(8 * piece);
      expect(await api(Extremes, patient).run({ region })).toEqual([1, 2, 3]);
      const moved = offset - 2 * piece;
      expect([0, 1, piece / 2 - 1, piece - 2, piece - 1].map((at) => read(moved + at))).toEqual([
        1, 4, 2, 5, 3,
      ]);
      expect(read(moved - 1)).toBe(0);
      expect(read(moved + piece)).toBe(0);
    },
    300_000,
  );
});
