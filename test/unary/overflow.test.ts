import { bytes, implement, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { layoutFor } from "../../src/fabric/port.ts";
import { exact } from "../matrix/exact-limits.ts";
import { isLong } from "../matrix/long.ts";
import { pair } from "../matrix/pair.ts";
import { type Provider, transports } from "../matrix/providers.ts";
import { isSecured } from "../matrix/secured.ts";
import { failure, until } from "../matrix/wait.ts";

const Body = service("body.v1", {
  /** Gives back what it was given. */
  echo: unary({ input: bytes(), output: bytes() }),
  /** Gives `size` bytes of pattern `seed`. */
  give: unary({ input: z.object({ size: z.number(), seed: z.number() }), output: bytes() }),
  /** Checks `bytes` against pattern `seed`. */
  take: unary({ input: z.object({ bytes: bytes(), seed: z.number() }), output: z.number() }),
  any: unary({ input: z.unknown(), output: z.unknown() }),
});

const KiB = 1024;
const MiB = 1024 * KiB;

/** Bodies that go one way, and the one that goes both ways, in MiB. */
const [large, largest] = isLong ? [[16, 64], 256] : [[16], 64];

/** Quick to make and to compare at hundreds of MiB, and without a period that a misplaced chunk would hide in. */
function pattern(size: number, seed: number): Uint8Array {
  const words = new Uint32Array(Math.ceil(size / 4));
  for (let i = 0; i < words.length; i++) words[i] = Math.imul(i + seed, 0x9e3779b1);
  return new Uint8Array(words.buffer, 0, size);
}

function expectPattern(actual: Uint8Array, size: number, seed: number): void {
  expect(actual.byteLength).toBe(size);
  expect(Buffer.compare(actual, pattern(size, seed)), `${size} bytes of pattern ${seed}`).toBe(0);
}

type Any = Parameters<typeof implement<typeof Body>>[1]["any"];
const carrying = (any: Any = (input) => input) =>
  implement(Body, {
    echo: (body) => body,
    give: ({ size, seed }) => pattern(size, seed),
    take({ bytes: body, seed }) {
      expectPattern(body, body.byteLength, seed);
      return body.byteLength;
    },
    any,
  });

/**
 * The longest byte string that travels in a message: a slot, less the message's header of 24 bytes, the frame's of 16,
 * and msgpack's own of 3.
 */
const boundaryOf = ({ scheme }: Provider) => layoutFor(scheme).slotBytes - 24 - 16 - 3;

const around = (middle: number, by: number) =>
  Array.from({ length: 2 * by + 1 }, (_, index) => middle - by + index);

describe.each(transports)("a body over $name", (provider) => {
  const boundary = boundaryOf(provider);

  it("of any length around the in-message limit arrives as it was sent, both ways", async () => {
    const { api, client, server } = await pair(provider, [carrying()]);
    // The tag of a sealed message takes 16 bytes.
    const tagBytes = isSecured ? 16 : 0;
    for (const size of around(boundary - tagBytes, 40)) {
      expectPattern(await api(Body).echo(pattern(size, size)), size, size);
    }
    // The 40 sizes beyond the limit were pulled, and no other.
    expect(server.stats().counters).toMatchObject({ bodiesPulled: 40, bodiesOffered: 40 });
    expect(client.stats().counters).toMatchObject({ bodiesPulled: 40, bodiesOffered: 40 });
  });

  it("around the limit arrives while other frames share its message", async () => {
    const { api } = await pair(provider, [carrying()]);
    const sizes = around(boundary, 40).flatMap((size) => [size, 3, size - 8000, 8001]);
    const bodies = await Promise.all(sizes.map((size, seed) => api(Body).echo(pattern(size, seed))));
    for (const [seed, size] of sizes.entries()) expectPattern(bodies[seed] as Uint8Array, size, seed);
  });

  it("of nothing, and around every power, arrives as it was sent", async () => {
    const { api } = await pair(provider, [carrying()]);
    const sizes = [
      0,
      1,
      2,
      31,
      32,
      255,
      256,
      4095,
      4096,
      65_535,
      65_536,
      65_537,
      MiB - 1,
      MiB,
      MiB + 1,
      5 * MiB + 7,
    ];
    for (const size of sizes) {
      expectPattern(await api(Body).echo(pattern(size, size)), size, size);
      expectPattern(await api(Body).give({ size, seed: 3 }), size, 3);
      expect(await api(Body).take({ bytes: pattern(size, 4), seed: 4 })).toBe(size);
    }
  });

  it(`of ${large.join(" and ")} MiB goes and comes`, { skip: !provider.carriesLargest }, async () => {
    const { api } = await pair(provider, [carrying()]);
    const client = api(Body, { timeoutMs: 60_000 });
    for (const size of large.map((mebi) => mebi * MiB)) {
      expect(await client.take({ bytes: pattern(size, 1), seed: 1 })).toBe(size);
      expectPattern(await client.give({ size, seed: 2 }), size, 2);
    }
  });

  it(`of ${largest} MiB goes and comes`, { skip: !provider.carriesLargest }, async () => {
    const { api, client, server } = await pair(provider, [carrying()]);
    const size = largest * MiB;
    // The deadline leaves room for sanitizers on a busy machine.
    expectPattern(await api(Body, { timeoutMs: 55_000 }).echo(pattern(size, 1)), size, 1);
    expect([client.stats().pullingBytes, server.stats().pullingBytes]).toEqual([0, 0]);
  });

  it("goes with a hundred others at once", async () => {
    const { api } = await pair(provider, [carrying()]);
    const sizes = Array.from({ length: 100 }, (_, index) => 10 * KiB + index * 3001);
    const bodies = await Promise.all(sizes.map((size, seed) => api(Body).echo(pattern(size, seed))));
    for (const [seed, size] of sizes.entries()) expectPattern(bodies[seed] as Uint8Array, size, seed);
  });

  it("of text and nested binary decodes to the very same value", async () => {
    const { api } = await pair(provider, [carrying()]);
    const values = [
      "ä".repeat(Math.ceil(boundary / 2)),
      "€😀".repeat(40_000),
      "x".repeat(MiB),
      { a: [pattern(3 * KiB, 1), { b: pattern(200 * KiB, 2) }], text: "😀".repeat(10_000), n: 7 },
      Array.from({ length: 20_000 }, (_, index) => ({ index, text: `#${index}` })),
      new Float64Array(10_000).map((_, index) => index / 7),
    ];
    for (const value of values) {
      const back = await api(Body).any(value);
      expect(structuredClone(plainBytes(back))).toEqual(structuredClone(plainBytes(value)));
    }
  });

  it("is the receiver's own: writing to what came back harms no other call", async () => {
    const { api } = await pair(provider, [
      carrying((input) => {
        const { body } = input as { body: Uint8Array };
        body.fill(0xff);
        return body.byteLength;
      }),
    ]);
    const mine = pattern(200 * KiB, 1);
    expect(await api(Body).any({ body: mine })).toBe(200 * KiB);
    expectPattern(mine, 200 * KiB, 1);
    const [one, two] = await Promise.all([
      api(Body).give({ size: 1000, seed: 1 }),
      api(Body).give({ size: 1000, seed: 1 }),
    ]);
    one.fill(0);
    expectPattern(two, 1000, 1);
    // Kept over many later messages in the same slots.
    for (let i = 0; i < 300; i++) await api(Body).echo(new Uint8Array(500).fill(i));
    expectPattern(two, 1000, 1);
  });

  it("beyond what the sender itself may send is refused at once", async () => {
    const { api, server } = await pair(provider, [carrying()], { client: { limits: { maxBodyBytes: MiB } } });
    const error = await failure(api(Body).echo(new Uint8Array(MiB + 1)));
    expect(error).toMatchObject({ code: "invalid_argument", origin: "local" });
    expect(error.message).toContain("maxBodyBytes");
    expect(server.stats().counters.requestsStarted).toBe(0);
    expectPattern(await api(Body).echo(pattern(MiB - 100, 1)), MiB - 100, 1);
  });

  it("beyond what the receiver takes is refused at once, and an answer beyond it by the server", async () => {
    const { api, server } = await pair(provider, [carrying()], { server: { limits: { maxBodyBytes: MiB } } });
    const request = await failure(api(Body).echo(new Uint8Array(MiB + 1)));
    expect(request).toMatchObject({ code: "invalid_argument", origin: "local" });
    expect(request.message).toContain(`maxBodyBytes is ${MiB}`);
    expect(server.stats().counters.requestsStarted).toBe(0);
    const answer = await failure(api(Body).give({ size: MiB + 1, seed: 1 }));
    expect(answer).toMatchObject({ code: "resource_exhausted", origin: "remote" });
    expect(answer.message).toContain("maxBodyBytes");
    expect(await api(Body).take({ bytes: pattern(1000, 1), seed: 1 })).toBe(1000);
  });

  it("of a sparse array ends the call, both ways, before its holes are written", async () => {
    const Sparse = service("sparse.v1", {
      echo: unary({ input: z.unknown(), output: z.unknown() }),
      give: unary({ output: z.unknown() }),
    });
    const sparse = { rows: new Array(2 ** 32 - 1) };
    const served = implement(Sparse, { echo: (value) => value, give: () => sparse });
    const { api } = await pair(provider, [served], { server: { onHandlerError: () => {} } });
    const request = await failure(api(Sparse).echo(sparse));
    expect(request).toMatchObject({ code: "invalid_argument", origin: "local" });
    expect(request.message).toContain(`the body has at least ${2 ** 32 - 1} bytes, maxBodyBytes is `);
    const answer = await failure(api(Sparse).give());
    expect(answer).toMatchObject({ code: "resource_exhausted", origin: "remote" });
    expect(await api(Sparse).echo([1])).toEqual([1]);
  });

  it.each(["client", "server"])("in one message obeys maxBodyBytes of the %s, both ways", async (side) => {
    const { api, server } = await pair(provider, [carrying()], {
      [side]: { limits: { maxBodyBytes: 2048 } },
    });
    const longest = 2048 - 3;
    const request = await failure(api(Body).echo(new Uint8Array(longest + 1)));
    expect(request).toMatchObject({ code: "invalid_argument", origin: "local" });
    expect(request.message).toContain("the body has 2049 bytes, maxBodyBytes is 2048");
    expect(server.stats().counters.requestsStarted).toBe(0);
    const answer = await failure(api(Body).give({ size: longest + 1, seed: 1 }));
    expect(answer).toMatchObject({ code: "resource_exhausted", origin: "remote" });
    expect(answer.message).toContain("the body has 2049 bytes, maxBodyBytes is 2048");
    expectPattern(await api(Body).echo(pattern(longest, 1)), longest, 1);
    expect(server.stats().counters.bodiesPulled).toBe(0);
  });

  it("in one message counts against maxPullBytes until its call is answered", async () => {
    let open = () => {};
    const gate = new Promise<void>((resolve) => {
      open = resolve;
    });
    const { api, server } = await pair(
      provider,
      [
        carrying(async (input) => {
          await gate;
          return (input as Uint8Array).byteLength;
        }),
      ],
      { server: { limits: exact({ maxPullBytes: 64 * KiB }) } },
    );
    const calls = Array.from({ length: 20 }, (_, seed) => api(Body).any.result(pattern(8000, seed)));
    // One peer gets half: four of them.
    expect(await Promise.race(calls)).toMatchObject({ ok: false, error: { code: "resource_exhausted" } });
    await until(() => server.stats().counters.requestsStarted === 20, "all calls have come");
    expect(server.stats()).toMatchObject({ calls: { in: 4 }, pullingBytes: 4 * 8003 });
    open();
    const results = await Promise.all(calls);
    expect(results.filter(({ ok }) => ok)).toHaveLength(4);
    for (const result of results) {
      if (result.ok) expect(result.value).toBe(8000);
      else expect(result.error.message).toContain("maxPullBytes");
    }
    await until(() => server.stats().pullingBytes === 0, "the budget is whole");
    expectPattern(await api(Body).echo(pattern(8000, 1)), 8000, 1);
  });

  it("beyond what may be pulled at once fails that call alone", async () => {
    const limits = exact({ maxPullBytes: 4 * MiB });
    const { api, client, server } = await pair(provider, [carrying()], {
      server: { limits },
      client: { limits },
    });
    const sizes = Array.from({ length: 20 }, () => 3 * MiB);
    const results = await Promise.all(
      sizes.map((size) => api(Body).take.result({ bytes: pattern(size, 1), seed: 1 })),
    );
    const refused = results.filter((result) => !result.ok);
    expect(refused.length).toBeGreaterThan(0);
    for (const result of refused) {
      expect(result).toMatchObject({ ok: false, error: { code: "resource_exhausted", origin: "remote" } });
    }
    // Answers, likewise.
    const answers = await Promise.all(sizes.map((size) => api(Body).give.result({ size, seed: 1 })));
    const lost = answers.filter((result) => !result.ok);
    expect(lost.length).toBeGreaterThan(0);
    for (const result of lost) expect(result).toMatchObject({ error: { code: "resource_exhausted" } });
    await until(
      () => server.stats().pullingBytes === 0 && client.stats().pullingBytes === 0,
      "the budget is whole",
    );
    expectPattern(await api(Body).echo(pattern(3 * MiB, 1)), 3 * MiB, 1);
    // A single one that is larger than the whole budget passes when it is alone.
    expectPattern(await api(Body).echo(pattern(6 * MiB, 1)), 6 * MiB, 1);
  });

  it("is not mixed with an earlier one in the same slots", async () => {
    const secret = Buffer.from("SECRET-OF-ANOTHER-CALL");
    const { api, client, server } = await pair(provider, [carrying()]);
    const long = Buffer.concat(Array.from({ length: 700 }, () => secret));
    // Fills every slot of both sides, then sends short messages over them.
    await Promise.all(Array.from({ length: 100 }, () => api(Body).echo(long)));
    const seen: unknown[] = [];
    for (let size = 0; size < 64; size++) seen.push(await api(Body).echo(new Uint8Array(size).fill(1)));
    await Promise.all(Array.from({ length: 64 }, (_, size) => api(Body).echo(new Uint8Array(size).fill(1))));
    for (const value of seen)
      expect(Buffer.from(value as Uint8Array).includes(secret.subarray(0, 6))).toBe(false);
    expect(client.stats().queuedBytes + server.stats().queuedBytes).toBe(0);
  });
});

/** Buffers and Uint8Arrays alike as plain Uint8Arrays, so that values can be compared. */
function plainBytes(value: unknown): unknown {
  if (value instanceof Uint8Array) return Uint8Array.from(value);
  if (Array.isArray(value)) return value.map(plainBytes);
  if (Object.getPrototypeOf(value) !== Object.prototype) return value;
  return Object.fromEntries(Object.entries(value as object).map(([key, each]) => [key, plainBytes(each)]));
}
