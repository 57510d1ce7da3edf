import { bulk, implement, RemoteRegion, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { grantOf, type RemoteGrant } from "../../src/memory/remote-region.ts";
import { openEngine, pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { blockFor, deferred, failure, fired, until, untilTurn } from "../matrix/wait.ts";
import { fill, firstWrong } from "./support/pattern.ts";

const Hold = service("hold.v1", { run: unary({ input: z.unknown(), output: z.unknown() }) });
const Typed = service("typed.v1", { run: unary({ input: z.object({ into: bulk("write") }) }) });

type Run = Parameters<typeof implement<typeof Hold>>[1]["run"];
const holding = (run: Run) => implement(Hold, { run });
type Into = { readonly into: RemoteRegion<"write"> };
type Call = Parameters<Run>[1];

const large = 32 << 20;

type Segment = RemoteGrant["segments"][number];

/** A handle that claims more than was lent. */
function forged(into: RemoteRegion<"write">, change: (segment: Segment) => Segment): RemoteRegion<"write"> {
  const { call, segments: granted } = grantOf(into);
  const segments = [change(granted[0] as Segment)];
  return new RemoteRegion(call, { access: 3, bytes: segments[0]?.bytes ?? 0, segments });
}

describe.each(transports)("a region over $name", (provider) => {
  it("refuses new use once it is disposed, by its slices too", async () => {
    const { api, client, server } = await pair(provider, [holding(() => "used")]);
    const region = client.expose(new Uint8Array(100), { access: "read_write" });
    const slice = region.slice(10, 50);
    const inner = slice.slice(5);
    expect(await api(Hold).run({ inner })).toBe("used");
    region.dispose();
    region.dispose();
    expect(client.stats().regions).toBe(0);
    for (const into of [region, slice, inner]) {
      expect(into.disposed).toBe(true);
      expect(() => into.slice(0)).toThrow("failed_precondition");
      const error = await failure(api(Hold).run({ into }));
      expect(error).toMatchObject({ code: "failed_precondition", origin: "local" });
      expect(error.message).toContain("the region has been disposed");
    }
    expect(server.stats().counters.requestsStarted).toBe(1);
  });

  it("of an engine that has closed is lent by no other", async () => {
    const { api, server } = await pair(provider, [holding(() => "used")]);
    const gone = await openEngine();
    const into = gone.expose(new Uint8Array(100), { access: "write" });
    await gone.close();
    expect(into.disposed).toBe(true);
    expect(await failure(api(Hold).run({ into }))).toMatchObject({
      code: "failed_precondition",
      origin: "local",
    });
    expect(() => gone.expose(new Uint8Array(100), { access: "write" })).toThrow("unavailable");
    expect(server.stats().counters.requestsStarted).toBe(0);
  });

  it("of another engine of the process is lent like the client's own", async () => {
    const { api } = await pair(provider, [
      holding((input, call) => call.put(new Uint8Array(100).fill(7), (input as Into).into)),
    ]);
    const other = await openEngine();
    const memory = new Uint8Array(100);
    using into = other.expose(memory, { access: "write" });
    expect(await api(Hold).run({ into })).toBe(100);
    expect(memory.every((byte) => byte === 7)).toBe(true);
    expect(into.grants).toBe(0);
  });

  it("ends a slice by itself", async () => {
    const { api, client } = await pair(provider, [holding(() => "used")]);
    using region = client.expose(new Uint8Array(100), { access: "read_write" });
    const slice = region.slice(10, 50);
    slice.dispose();
    expect(await failure(api(Hold).run({ slice }))).toMatchObject({ code: "failed_precondition" });
    expect(await api(Hold).run({ region })).toBe("used");
  });

  it("lets go of the other regions of a request that is refused for one of them", async () => {
    const { api, client } = await pair(provider, [holding(() => "used")]);
    using good = client.expose(new Uint8Array(100), { access: "read" });
    const bad = client.expose(new Uint8Array(100), { access: "read" });
    bad.dispose();
    await failure(api(Hold).run({ good, bad }));
    await failure(api(Hold).run({ good, worse: () => 1 }));
    expect(good.grants).toBe(0);
  });

  it("that is disposed during a call serves the call to its end, then lets go", async () => {
    const gate = deferred();
    const { api, client, server } = await pair(provider, [
      holding(async (input, call) => {
        await gate.promise;
        return call.put(new Uint8Array(100).fill(7), (input as Into).into);
      }),
    ]);
    const memory = new Uint8Array(100);
    const into = client.expose(memory, { access: "write" });
    const call = api(Hold).run({ into });
    await until(() => server.stats().calls.in === 1, "the handler runs");
    into.dispose();
    expect(client.stats().regions).toBe(1);
    expect(into.grants).toBe(1);
    gate.resolve();
    expect(await call).toBe(100);
    expect(memory.every((byte) => byte === 7)).toBe(true);
    expect(client.stats().regions).toBe(0);
  });

  it("kept beyond its call is refused: with the old call, and with another one", async () => {
    let kept: { into: RemoteRegion<"write">; call: Call } | undefined;
    const { api, client } = await pair(provider, [
      holding(async (input, call) => {
        if (kept === undefined) {
          kept = { into: (input as Into).into, call };
          return "kept";
        }
        return call.put(new Uint8Array(1), kept.into);
      }),
    ]);
    using into = client.expose(new Uint8Array(100), { access: "write" });
    expect(await api(Hold).run({ into })).toBe("kept");
    const held = kept as unknown as { into: RemoteRegion<"write">; call: Call };
    expect(await failure(held.call.put(new Uint8Array(1), held.into))).toMatchObject({
      code: "failed_precondition",
    });
    expect(await failure(api(Hold).run({ into }))).toMatchObject({
      code: "permission_denied",
      origin: "remote",
    });
    expect(into.bytes.every((byte) => byte === 0)).toBe(true);
  });

  it("cannot be reached beyond the slice that was lent, by whatever handle", async () => {
    const made = (into: RemoteRegion<"write">, change: { bytes?: number; shift?: bigint; key?: bigint }) =>
      forged(into, (segment) => ({
        key: change.key ?? segment.key,
        address: segment.address + (change.shift ?? 0n),
        bytes: change.bytes ?? segment.bytes,
      }));
    const { api, client } = await pair(
      provider,
      [
        holding(async (input, call) => {
          const { into } = input as Into;
          const local = new Uint8Array(64).fill(9);
          const attempts = [
            made(into, { bytes: 64 }),
            made(into, { shift: -8n, bytes: 64 }),
            made(into, { shift: 4096n, bytes: 64 }),
            made(into, { key: 0x5555n, bytes: 64 }),
          ];
          const codes: string[] = [];
          for (const region of attempts) {
            codes.push(
              await call.put(local, region).then(
                () => "done",
                (error) => error.code,
              ),
            );
          }
          return codes;
        }),
      ],
      // A refused transfer may cost the connection: tcp tears it down.
      { endsHard: true },
    );
    const memory = new Uint8Array(8192);
    using region = client.expose(memory, { access: "write" });
    const into = region.slice(100, 32);
    const result = await api(Hold).run.result({ into }, { timeoutMs: 5000 });
    if (result.ok) expect(result.value).not.toContain("done");
    expect(memory.every((byte) => byte === 0)).toBe(true);
  });

  it("cannot be written by a handle on a region that was lent for reading", async () => {
    const { api, client } = await pair(
      provider,
      [
        holding(async (input, call) => {
          const { into } = input as Into;
          const writable = forged(into, (segment) => segment);
          return call.put(new Uint8Array(64).fill(9), writable).then(
            () => "done",
            (error) => error.code,
          );
        }),
      ],
      { endsHard: true },
    );
    const memory = new Uint8Array(64);
    using into = client.expose(memory, { access: "read" });
    const result = await api(Hold).run.result({ into }, { timeoutMs: 5000 });
    if (result.ok) expect(result.value).not.toBe("done");
    expect(memory.every((byte) => byte === 0)).toBe(true);
  });

  it("cannot travel in an output, whichever side it belongs to", async () => {
    const { api, client, server } = await pair(provider, [
      holding((input) => {
        const { into, own } = input as Into & { own: boolean };
        return own ? server.expose(new Uint8Array(1), { access: "read" }) : { into };
      }),
    ]);
    using into = client.expose(new Uint8Array(100), { access: "write" });
    for (const own of [true, false]) {
      const error = await failure(api(Hold).run({ into, own }));
      expect(error).toMatchObject({ code: "internal", origin: "remote" });
      expect(error.message).toContain("a region cannot be sent here");
    }
    await server.close();
  });

  it("cannot be passed on by a handler as its own", async () => {
    const next = await pair(provider, [implement(Typed, { run: () => {} })]);
    const { api, client } = await pair(provider, [
      holding(async (input) => {
        const result = await next.api(Typed).run.result({ into: (input as Into).into as never });
        return result.ok ? "passed" : [result.error.code, result.error.message];
      }),
    ]);
    using into = client.expose(new Uint8Array(100), { access: "write" });
    expect(await api(Hold).run({ into })).toEqual(["invalid_argument", expect.stringContaining("region")]);
    expect(next.server.stats().counters.requestsStarted).toBe(0);
  });

  it("stays pinned while a cancelled put is under way, and is good again afterwards", async () => {
    const source = new Uint8Array(large);
    fill(source, 11);
    const outcome = deferred<unknown>();
    let putting = false;
    const { api, client, server } = await pair(provider, [
      holding(async (input, call) => {
        const { into, quick } = input as Into & { quick?: boolean };
        putting = true;
        const put = call.put(quick === true ? source.subarray(0, 100) : source, into);
        put.catch((error: unknown) =>
          outcome.resolve([error, call.signal.reason, server.stats().ports[0]?.transfers]),
        );
        return put;
      }),
    ]);
    const memory = new Uint8Array(large);
    using into = client.expose(memory, { access: "write" });
    const controller = new AbortController();
    const call = failure(api(Hold).run({ into }, { signal: controller.signal }));
    await untilTurn(() => putting, "the put has begun");
    controller.abort();
    expect(await call).toMatchObject({ code: "cancelled" });
    const [error, reason] = (await outcome.promise) as [unknown, unknown, number];
    expect(error).toBe(reason);
    expect(error).toMatchObject({ code: "cancelled" });
    // The grant ends with the terminal frame, which waits for the last transfer.
    await until(() => into.grants === 0, "the grant ends");
    expect(server.stats().ports.every(({ transfers }) => transfers === 0)).toBe(true);
    memory.fill(0);
    // From here on nobody writes: a whole other call and answer later it is still as we left it.
    await api(Hold).run({ into: client.expose(new Uint8Array(100), { access: "write" }), quick: true });
    expect(memory.every((byte) => byte === 0)).toBe(true);
    expect(await api(Hold).run({ into, quick: true })).toBe(100);
    expect(firstWrong(memory.subarray(0, 100), 11)).toBe(-1);
    await client.close();
  });

  it("stays untouched after a deadline has ended a put", async () => {
    const source = new Uint8Array(large).fill(1);
    let putting = false;
    const { api, client, server } = await pair(provider, [
      holding(async (input, call) => {
        putting = true;
        return call.put(source, (input as Into).into);
      }),
    ]);
    const memory = new Uint8Array(large);
    using into = client.expose(memory, { access: "write" });
    const call = failure(api(Hold).run({ into }, { timeoutMs: 300 }));
    await untilTurn(() => putting, "the put has begun");
    blockFor(350);
    expect(await call).toMatchObject({ code: "deadline_exceeded" });
    await until(() => into.grants === 0 && server.stats().calls.in === 0, "the grant ends");
    expect(server.stats().ports.every(({ transfers }) => transfers === 0)).toBe(true);
  });

  it("is not written after the answer has come, though the handler did not wait for its put", async () => {
    const { api, client } = await pair(provider, [
      holding((input, call) => {
        void call.put(new Uint8Array(large).fill(5), (input as Into).into);
        return "returned";
      }),
    ]);
    const memory = new Uint8Array(large);
    using into = client.expose(memory, { access: "write" });
    expect(await api(Hold).run({ into })).toBe("returned");
    expect(into.grants).toBe(0);
    expect(memory.every((byte) => byte === 5)).toBe(true);
    memory.fill(0);
    // Whatever was still under way would show.
    using other = client.expose(new Uint8Array(large), { access: "write" });
    await api(Hold).run({ into: other });
    expect(memory.every((byte) => byte === 0)).toBe(true);
  });

  it("says clearly that local memory has been detached, or a local region disposed", async () => {
    const { api, client, server } = await pair(provider, [
      holding(async (input, call) => {
        const { into } = input as Into;
        const gone = new Uint8Array(16);
        structuredClone(gone.buffer, { transfer: [gone.buffer] });
        const disposed = server.expose(new Uint8Array(16), { access: "read" });
        disposed.dispose();
        const said: string[] = [];
        for (const local of [gone, disposed]) {
          said.push(await call.put(local, into).then(String, (error: Error) => error.message));
        }
        return said;
      }),
    ]);
    using into = client.expose(new Uint8Array(16), { access: "write" });
    expect(await api(Hold).run({ into })).toEqual([
      expect.stringMatching(/failed_precondition.*detached/),
      expect.stringMatching(/failed_precondition.*disposed/),
    ]);
    const view = new Uint8Array(16);
    structuredClone(view.buffer, { transfer: [view.buffer] });
    expect(() => client.expose(view, { access: "read" })).toThrow("detached");
  });

  it("cannot be detached while it is exposed", async () => {
    const { client } = await pair(provider, [holding(() => 1)]);
    const memory = new Uint8Array(16).fill(3);
    using region = client.expose(memory, { access: "read" });
    try {
      structuredClone(memory.buffer, { transfer: [memory.buffer] });
    } catch (error) {
      expect((error as Error).name).toBe("DataCloneError");
    }
    expect(memory.byteLength).toBe(16);
    expect(region.bytes[0]).toBe(3);
  });

  it("fires the signal of a handler in the middle of a transfer when the caller goes, and the server comes to rest", async () => {
    let signal: AbortSignal | undefined;
    const { api, client, server } = await pair(
      provider,
      [
        holding(async (input, call) => {
          signal = call.signal;
          for (;;) await call.put(new Uint8Array(1 << 20), (input as Into).into);
        }),
      ],
      { endsHard: true },
    );
    const into = client.expose(new Uint8Array(1 << 20), { access: "write" });
    const call = failure(api(Hold).run({ into }));
    await untilTurn(() => signal !== undefined, "the handler runs");
    await client.close();
    expect(await call).toMatchObject({ code: "unavailable" });
    expect(await fired(signal as unknown as AbortSignal)).toMatchObject({ code: "unavailable" });
    await until(
      () => server.stats().ports.every(({ transfers }) => transfers === 0),
      "no transfer is under way",
    );
    // What the next transfer finds registered goes by itself, a second later.
    await until(
      () => server.stats().ports.every(({ regions, registrations }) => regions === registrations.idle),
      "no memory is registered for anybody",
    );
    expect(server.stats()).toMatchObject({ calls: { in: 0 }, deadlines: 0 });
  });
});
