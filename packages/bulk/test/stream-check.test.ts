import { readFileSync } from "node:fs";
import { bulk, type RemoteRegionLike, serverStream, unary } from "cinnabar";
import { bulkStream } from "cinnabar-bulk";
import * as standard from "cinnabar-bulk/standard";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { fromJson } from "../../../test/golden/support/meaning.ts";
import { ByteStreams } from "../src/byte-stream/stream-service.ts";
import { bulkStreamBrand } from "../src/contract/stream-kind.ts";

const problems = (schema: z.ZodType, value: unknown) =>
  schema.safeParse(value).error?.issues.map(({ message }) => message);

/** The codec's form of a granted region, as far as the check reads it. */
function ringOf(byteLength: number, access: "read" | "write" | "read_write"): RemoteRegionLike {
  const brand = Symbol.for("cinnabar.RemoteRegion");
  return { [brand]: true, byteLength, access } as unknown as RemoteRegionLike;
}

const descriptor = {
  stream: new Uint8Array(16),
  chunkBytes: 4096,
  chunks: 3,
  ring: ringOf(3 * 4096, "read"),
};

describe.each([
  ["of zod", bulkStream],
  [
    "without zod",
    (direction: "read" | "write") => z.any().superRefine(checkedBy(standard.bulkStream(direction))),
  ],
] as const)("the schema %s", (_, make) => {
  const stream = { [bulkStreamBrand]: true, direction: "read" };

  it("takes a stream of its direction, and says what is wrong with anything else", () => {
    expect(problems(make("read"), stream)).toBeUndefined();
    expect(problems(make("write"), stream)).toEqual([
      'the byte stream has the direction "read"; the method needs "write"',
    ]);
    for (const value of [null, 1, {}, "read"])
      expect(problems(make("read"), value)).toEqual(["expected a byte stream"]);
    expect(() => make("both" as never)).toThrow('direction must be "read" or "write"');
  });

  it.each([
    ["no name", { stream: undefined }, "does not have 16 bytes"],
    ["a short name", { stream: new Uint8Array(15) }, "does not have 16 bytes"],
    ["one chunk", { chunks: 1 }, "has 1 chunks"],
    ["half a chunk", { chunks: 2.5 }, "has 2.5 chunks"],
    ["many chunks", { chunks: 65, ring: ringOf(65 * 4096, "read") }, "has 65 chunks"],
    ["short chunks", { chunkBytes: 4095 }, "has chunks of 4095 bytes"],
    ["long chunks", { chunkBytes: 2 ** 30 + 1 }, "has chunks of 1073741825 bytes"],
    ["another ring than its chunks need", { chunks: 4 }, "has a ring of 12288 bytes"],
    [
      "a ring for the other direction",
      { ring: ringOf(3 * 4096, "write") },
      "no ring that the handler may read",
    ],
    [
      "a ring for both directions",
      { ring: ringOf(3 * 4096, "read_write") },
      "no ring that the handler may read",
    ],
    ["no ring", { ring: new Uint8Array(3 * 4096) }, "no ring that the handler may read"],
  ])("refuses a descriptor with %s", (_, change, message) => {
    expect(problems(make("read"), { ...descriptor, ...change })).toEqual([expect.stringContaining(message)]);
  });

  it("makes no stream of anything else, and never throws", () => {
    fc.assert(
      fc.property(fc.anything(), fc.anything(), (value, ring) => {
        expect(problems(make("read"), value)).toHaveLength(1);
        expect(problems(make("read"), { ...descriptor, ring })).toHaveLength(1);
      }),
    );
  });
});

function checkedBy(schema: ReturnType<typeof standard.bulkStream>) {
  return (value: unknown, context: z.RefinementCtx) => {
    const verdict = schema["~standard"].validate(value);
    if (verdict instanceof Promise) throw new Error("it is synchronous");
    for (const { message } of verdict.issues ?? []) context.addIssue({ code: "custom", message });
  };
}

it("the schema makes a RemoteStream of a descriptor, and takes none from a handler", () => {
  const remote = z.object({ data: bulkStream("read") }).parse({ data: descriptor }).data;
  expect(remote).toBeInstanceOf(standard.RemoteStream);
  expect(remote.direction).toBe("read");
  expect(problems(bulkStream("read"), remote)).toEqual([expect.stringContaining("cannot pass it on")]);
});

it("the schema has a JSON Schema, and is refused outside the input of a call", () => {
  expect(z.toJSONSchema(bulkStream("read"))).toMatchObject({
    "x-cinnabar-bulk-stream": { direction: "read" },
  });
  const message = "only the input of a call with an answer can carry";
  expect(() => unary({ output: z.object({ a: z.array(bulkStream("read").optional()) }) })).toThrow(message);
  expect(() => serverStream({ output: standard.bulkStream("write") })).toThrow(message);
  expect(() => unary({ input: z.object({ a: bulkStream("read"), b: bulk("read") }) })).not.toThrow();
});

describe("the golden vectors", () => {
  const file = new URL("../../../test/golden/messages.json", import.meta.url);
  const vectors = JSON.parse(readFileSync(file, "utf8")) as {
    name: string;
    frames: { method: number; body: unknown }[];
  }[];
  const bodyOf = (start: string) =>
    fromJson(vectors.find(({ name }) => name.startsWith(start))?.frames[0]?.body);

  it.each(["next: chunk 3", "push: chunk 0", "stop: a stream"])(
    "have the form that is served: %s",
    (name) => {
      const method = ByteStreams.methods[name.slice(0, 4) as "next" | "push" | "stop"];
      expect(method.input["~standard"].validate(bodyOf(name))).not.toHaveProperty("issues");
    },
  );

  it("have an answer of that form, and a stream", () => {
    const { output } = ByteStreams.methods.next;
    expect(output["~standard"].validate(bodyOf("next: what the chunk has"))).not.toHaveProperty("issues");
    const { log } = bodyOf("request with a byte stream") as { log: typeof descriptor };
    const ring = ringOf(log.chunkBytes * log.chunks, "read");
    expect(problems(bulkStream("read"), { ...log, ring })).toBeUndefined();
  });
});
