import { type Access, implement, type RemoteRegion, type RpcError, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import type { RegionDescriptor } from "../../src/wire/region-descriptor.ts";
import { pair } from "../matrix/pair.ts";
import { providers, transports } from "../matrix/providers.ts";
import { isSecured } from "../matrix/secured.ts";
import { failure, until } from "../matrix/wait.ts";
import { ForgedRegion, withSegment } from "./support/forged-region.ts";

const Bad = service("bad.v1", { run: unary({ input: z.unknown(), output: z.unknown() }) });
type Run = Parameters<typeof implement<typeof Bad>>[1]["run"];
const doing = (run: Run) => implement(Bad, { run });
type Forge = (descriptor: RegionDescriptor) => RegionDescriptor;
type Both = { readonly region: RemoteRegion<"read_write"> };

/** What a promise came to, short enough to compare. */
const said = (promise: Promise<unknown>): Promise<string> =>
  promise.then(
    (value) => `done ${String(value)}`,
    (error: Error | RpcError) => ("code" in error ? error.code : error.name),
  );

describe.each(transports)("bad input over $name", (provider) => {
  it("to a transfer is refused by the handler's own side, with a reason, and the call goes on", async () => {
    const { api, client, server } = await pair(provider, [
      doing(async (input, call) => {
        const { region } = input as Both;
        const local = new Uint8Array(16);
        const gone = new Uint8Array(16);
        structuredClone(gone.buffer, { transfer: [gone.buffer] });
        const resizable = new Uint8Array(
          Reflect.construct(ArrayBuffer, [16, { maxByteLength: 32 }]) as ArrayBuffer,
        );
        const disposed = server.expose(new Uint8Array(16), { access: "read" });
        disposed.dispose();
        const results: Record<string, string> = {};
        const attempts: Record<string, () => Promise<unknown>> = {
          nothing: () => call.get(region, local, { length: 0 }),
          "nothing at the end": () => call.get(region, local, { offset: 100, length: 0 }),
          "no views": () => call.put([], region),
          "past the end": () => call.get(region, local, { offset: 85 }),
          "beyond the end": () => call.get(region, local, { offset: 101, length: 0 }),
          "beyond 2^53": () => call.get(region, local, { offset: 2 ** 53 - 8, length: 16 }),
          "negative length": () => call.put(local, region, { length: -1 }),
          detached: () => call.get(region, gone),
          "one of two detached": () => call.get(region, [local, gone]),
          resizable: () => call.get(region, resizable),
          "disposed local region": () => call.put(disposed, region),
          "no memory": () => call.get(region, {} as never),
          "no region": () => call.get({} as never, local),
          "unknown option": () => call.get(region, local, { bytes: 1 } as never),
          "tiny chunks": () => call.get(region, local, { chunkBytes: 1 }),
          "no whole elements": () => call.pull(region, Float64Array),
          "shared memory": () => call.get(region, new Uint8Array(new SharedArrayBuffer(32), 8, 16)),
        };
        for (const [name, attempt] of Object.entries(attempts)) results[name] = await said(attempt());
        return results;
      }),
    ]);
    using region = client.expose(new Uint8Array(100), { access: "read_write" });
    expect(await api(Bad).run({ region })).toEqual({
      nothing: "done 0",
      "nothing at the end": "done 0",
      "no views": "done 0",
      "past the end": "out_of_range",
      "beyond the end": "out_of_range",
      "beyond 2^53": "out_of_range",
      "negative length": "out_of_range",
      detached: "failed_precondition",
      "one of two detached": "failed_precondition",
      resizable: "TypeError",
      "disposed local region": "failed_precondition",
      "no memory": "TypeError",
      "no region": "TypeError",
      "unknown option": "TypeError",
      "tiny chunks": "RangeError",
      "no whole elements": "invalid_argument",
      "shared memory": "done 16",
    });
  });

  it("to expose is refused, naming the view", async () => {
    const { client } = await pair(provider, []);
    const good = new Uint8Array(8);
    const gone = new Uint8Array(8);
    structuredClone(gone.buffer, { transfer: [gone.buffer] });
    const resizable = new Uint8Array(
      Reflect.construct(ArrayBuffer, [8, { maxByteLength: 16 }]) as ArrayBuffer,
    );
    const many = Array.from({ length: 4097 }, () => new Uint8Array(new ArrayBuffer(2), 0, 1));
    const expose = (views: unknown) => () => client.expose(views as Uint8Array[], { access: "read" });
    expect(expose([good, gone])).toThrow("view 1 has been detached");
    expect(expose([good, good, resizable])).toThrow("view 2 must not lie in a resizable buffer");
    expect(expose([good, "x"])).toThrow("view 1 must be a typed array");
    expect(expose(many)).toThrow("the views make 4097 segments; the limit is 4096");
    using most = client.expose(many.slice(1), { access: "read" });
    using shared = client.expose(new Uint8Array(new SharedArrayBuffer(8)), { access: "read" });
    expect([most.segments.length, shared.byteLength, client.stats().regions]).toEqual([4096, 8, 2]);
  });

  it("carries 4096 segments in one request, and reads all of them", async () => {
    const { api, client } = await pair(provider, [
      doing(async (input, call) => {
        const bytes = await call.pull((input as Both).region, Uint8Array);
        return bytes.every((byte, index) => byte === (index & 0xff));
      }),
    ]);
    const memory = new Uint8Array(3 * 4096);
    const views = Array.from({ length: 4096 }, (_, i) => memory.subarray(3 * i, 3 * i + 1).fill(i));
    using region = client.expose(views, { access: "read" });
    expect(await api(Bad).run({ region }, { timeoutMs: 30_000 })).toBe(true);
  });

  it("of memory that is its own peer's source and destination is refused", async () => {
    const memory = new Uint8Array(1000);
    const { api, client } = await pair(provider, [
      doing(async (input, call) => {
        const { region } = input as Both;
        return [
          await said(call.put(memory, region)),
          await said(call.get(region, memory.subarray(499, 600))),
          await said(call.put(memory.subarray(500, 600), region)),
        ];
      }),
    ]);
    using region = client.expose(memory.subarray(0, 500), { access: "read_write" });
    expect(await api(Bad).run({ region: region.slice(0) })).toEqual(["out_of_range", "done 101", "done 100"]);
    using over = client.expose(memory, { access: "read_write" });
    expect(await api(Bad).run({ region: over })).toEqual(["invalid_argument", "done 101", "done 100"]);
  });

  it("that is a region of another call, or of this one after its end, moves nothing", async () => {
    let kept: RemoteRegion<"read_write"> | undefined;
    let late: (() => Promise<unknown>) | undefined;
    const { api, client } = await pair(provider, [
      doing(async (input, call) => {
        const { region } = input as Both;
        const before = kept;
        kept = region;
        late = () => call.put(new Uint8Array(4), region);
        return before === undefined ? "kept" : said(call.put(new Uint8Array(4), before));
      }),
    ]);
    using region = client.expose(new Uint8Array(4).fill(1), { access: "read_write" });
    expect(await api(Bad).run({ region })).toBe("kept");
    expect(await said(late?.() ?? Promise.resolve())).toBe("failed_precondition");
    expect(await api(Bad).run({ region })).toBe("permission_denied");
    expect([...region.bytes]).toEqual([1, 1, 1, 1]);
  });

  it("that is a region disposed or revoked is refused before anything is sent", async () => {
    const { api, client, server } = await pair(provider, [doing(() => "served")]);
    const disposed = client.expose(new Uint8Array(4), { access: "read" });
    disposed.dispose();
    const revoked = client.expose(new Uint8Array(4), { access: "read" });
    await revoked.revoke();
    for (const [region, word] of [
      [disposed, "disposed"],
      [revoked, "revoked"],
    ] as const) {
      const error = await failure(api(Bad).run({ region }));
      expect(error).toMatchObject({ code: "failed_precondition", origin: "local" });
      expect(error.message).toContain(`the region has been ${word}`);
    }
    expect(server.stats().counters.requestsStarted).toBe(0);
  });
});

describe.each(providers.filter(({ name }) => !/IPv6|host name/.test(name)))(
  "a hostile caller over $name",
  (provider) => {
    const unknown = "permission_denied";
    const beyond = "out_of_range";
    const cases: Record<string, [Forge, string, Access?]> = {
      "a key nobody has": [(d) => withSegment(d, ({ key }) => ({ key: key ^ 0x5555n })), unknown],
      "more than there is": [(d) => withSegment(d, ({ bytes }) => ({ bytes: bytes + 4096 })), beyond],
      "another place": [(d) => withSegment(d, ({ address }) => ({ address: address + 4096n })), beyond],
      "a right that it has not": [(d) => ({ ...d, access: 3 }), unknown, "read"],
      "the end of memory": [
        (d) => withSegment(d, ({ bytes }) => ({ address: 2n ** 64n - 1n - BigInt(bytes) })),
        beyond,
      ],
      "its second segment made up": [
        (d) => ({ ...d, bytes: 164, segments: [...d.segments, { key: 77n, address: 0n, bytes: 100 }] }),
        unknown,
      ],
    };

    it.each(Object.entries(cases))(
      "that describes %s has its call refused, and nothing else",
      async (_, made) => {
        const [forge, code, granted] = made;
        const { api, client, server } = await pair(
          provider,
          [
            doing(async (input, call) => {
              if (input === "alive") return "alive";
              const { region } = input as Both;
              return said(call.put(new Uint8Array(region.byteLength).fill(9), region as never));
            }),
          ],
          // tcp and verbs break the connection off, and with it what else was on its way.
          { endsHard: provider.hasConnections },
        );
        const memory = new Uint8Array(16_384);
        const exposed = memory.subarray(4096, 4096 + 64);
        const region = new ForgedRegion(exposed, granted ?? "read_write", forge);
        const result = await api(Bad).run.result({ region }, { timeoutMs: 10_000 });
        // Where bulk travels sealed, keys are the owner's own names and addresses have no meaning: some lies are none.
        const hasMeaning = !isSecured;
        if (!hasMeaning) expect(result.ok).toBe(true);
        else if (!provider.hasConnections) expect(result).toMatchObject({ ok: true, value: code });
        else if (result.ok) expect(result.value).not.toMatch(/^done/);
        // Nothing beside what was lent has changed; of what was lent, the first segment may have.
        const around = [...memory.subarray(0, 4096), ...memory.subarray(4096 + 64)];
        expect(around.every((byte) => byte === 0)).toBe(true);
        let alive: unknown;
        await until(() => {
          if (alive === undefined)
            void api(Bad)
              .run.result("alive")
              .then((each) => (alive ??= each.ok || undefined));
          return alive === true;
        }, "both live on");
        expect([client.stats().counters.malformed, server.stats().counters.malformed]).toEqual([0, 0]);
        region.dispose();
      },
    );
  },
);
