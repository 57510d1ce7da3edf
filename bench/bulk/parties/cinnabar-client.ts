import { Engine, type PooledMemory, type Region, type RegionKeys } from "cinnabar";
import { cpuUs } from "../../echo/usage.ts";
import { parseTransport, securityFor } from "../../security/options.ts";
import { median, percentile } from "../../suite/statistics.ts";
import { Busy } from "../busy.ts";
import { Bulk, heartbeatMs } from "../contract.ts";
import { type Measured, runLanes, type Stretch } from "../lanes.ts";
import type { Owner } from "../party.ts";
import { patterned, Slots } from "../slots.ts";
import { open as openServer } from "./cinnabar-server.ts";

/** What registered memory costs, in nanoseconds. */
export interface LendingCosts {
  /** `engine.expose` and `dispose`, with no call in between. */
  readonly exposeNs: number;
  /**
   * What a call that lends a region takes longer than one that lends none: a region kept, and one exposed for this call
   * alone.
   */
  readonly lendKeptNs: number;
  readonly lendFreshNs: number;
}

/** What memory costs before anything is done with it, in nanoseconds; all are given back. */
export interface PoolCosts {
  /** From the engine's pool as it is, and zeroed. */
  readonly takeNs: number;
  readonly takeZeroedNs: number;
  /** With all of it written once: from the pool, and made anew, which is when the system hands out its pages. */
  readonly takeAndFillNs: number;
  readonly allocateAndFillNs: number;
}

/**
 * How long calls took that lend memory, in microseconds: medians, one call in flight, by how long the region's keys
 * live. Regions of both kinds are in use all the time, and calls take turns.
 */
export interface RegistrationCosts {
  /** All of the memory is put into. */
  readonly moved: Readonly<Record<RegionKeys, number>>;
  /** Nobody touches the memory: what is left is the call and the registration. */
  readonly lent: Readonly<Record<RegionKeys, number>>;
}

/** How long it takes to hand bytes to a handler, and to move them within one, in microseconds: medians, one in flight. */
export interface SmallTransfers {
  /** A call with the bytes in its input. */
  readonly carryUs: number;
  /** A call that lends them, whose handler gets them: registered for the call, and for the region's life. */
  readonly lendUs: number;
  readonly lendKeptUs: number;
  /** One of many transfers in one handler, by its clock. */
  readonly getUs: number;
  readonly putUs: number;
}

/** How long small calls took, one in flight, and what the stream beside them carried. */
export interface SmallCalls {
  readonly calls: number;
  readonly p50Us: number;
  readonly p99Us: number;
  readonly streamBytesPerMs: number;
}

export interface CinnabarClient extends Owner {
  lendingCosts(bytes: number, durationMs: number): Promise<LendingCosts>;
  poolCosts(bytes: number, durationMs: number): Promise<PoolCosts>;
  /** Rejects when other bytes arrive than were sent, or memory is registered more or less often than it should be. */
  registrationCosts(bytes: number, durationMs: number): Promise<RegistrationCosts>;
  smallTransfers(bytes: number, durationMs: number): Promise<SmallTransfers>;
  /** Exposes memory in one piece, and in many so long on average, and checks that both carry what they should. */
  prepareScatter(averageBytes: number): Promise<void>;
  scatter(op: "get" | "put", kind: "contiguous" | "scattered", durationMs: number): Promise<Measured>;
  /** Beside a stream of so many transfers of the size prepared, or for a time beside nothing. */
  smallCalls(
    beside: { op: "get" | "put"; transfers: number; inFlight: number } | number,
  ): Promise<SmallCalls>;
}

const mySide = 1;
const serverSide = 2;
const exposures = 2_000;

/** The scattered region has so many pieces. */
export const pieces = 1024;

/** Odd lengths, so many bytes a piece on average: a power of two. */
function oddLengths(averageBytes: number): number[] {
  const lengths = Array.from({ length: pieces - 1 }, (_, index) => 1 + 2 * ((index * 26_317) % averageBytes));
  return [...lengths, pieces * averageBytes - lengths.reduce((sum, bytes) => sum + bytes, 0)];
}

/**
 * Lends its memory to the server, which moves the bytes. Ways: `get`, `put`, and with ` by call` one call for each
 * transfer. Without an address the server is in this process too, as over `mem` it must be.
 */
export async function open(transport: string, address: string): Promise<CinnabarClient> {
  const { url, isSealed } = parseTransport(transport);
  const engine = await Engine.open({ ...securityFor(isSealed), heartbeatMs });
  const server = address === "" ? await openServer(url) : undefined;
  const client = (await engine.connect(address || url)).client(Bulk, { timeoutMs: 300_000 });
  const busy = new Busy();
  let slots = new Slots(0);
  let pooled: PooledMemory | undefined;
  let region: Region<"read_write"> = engine.expose(slots.memory, { access: "read_write" });

  /** The same length, in one piece and in many. */
  let scatter: Record<"contiguous" | "scattered", Region<"read_write">> | undefined;

  const run = (op: "get" | "put", inFlight: number, stretch: Stretch) =>
    client.run({ op, inFlight, stretch, region });

  return {
    async prepare(bytes, lanes) {
      region.dispose();
      pooled?.dispose();
      slots = new Slots(bytes, lanes, (total) => {
        pooled = engine.pool.take(total);
        return pooled.bytes;
      });
      slots.fill(mySide);
      region = engine.expose(slots.memory, { access: "read_write" });
      const all = { transfers: slots.count };
      await client.prepare({ bytes, lanes });
      await run("get", all.transfers, all);
      await client.prepare({ bytes, lanes, verify: mySide, fill: serverSide });
      await run("put", all.transfers, all);
      slots.verify(serverSide, `cinnabar ${url} put`);
    },

    async measure(way, inFlight, durationMs) {
      const op = way.startsWith("get") ? "get" : "put";
      if (!way.endsWith("by call")) return run(op, inFlight, { durationMs });
      const slices = Array.from({ length: slots.count }, (_, lane) =>
        region.slice(slots.offset(lane), slots.bytes),
      );
      return runLanes(inFlight, { durationMs }, (lane) =>
        client.move({ op, lane, region: slices[lane % slots.count] ?? region }),
      );
    },

    async lendingCosts(bytes, durationMs) {
      const memory = new Uint8Array(bytes).fill(1);
      const started = performance.now();
      for (let count = 0; count < exposures; count++)
        engine.expose(memory, { access: "read_write" }).dispose();
      const exposeNs = ((performance.now() - started) / exposures) * 1e6;

      using kept = engine.expose(memory, { access: "read_write" });
      const nothing = () => client.nothing({});
      const lendKept = () => client.hold({ region: kept });
      const lendFresh = () => {
        const fresh = engine.expose(memory, { access: "read_write" });
        return client.hold({ region: fresh }).finally(() => fresh.dispose());
      };
      const kinds = [nothing, lendKept, lendFresh].map((call) => ({ call, tookMs: [] as number[] }));
      await byTurns(kinds, durationMs);
      const [base = 0, keptMs = 0, freshMs = 0] = kinds.map(({ tookMs }) => median(tookMs));
      return { exposeNs, lendKeptNs: (keptMs - base) * 1e6, lendFreshNs: (freshMs - base) * 1e6 };
    },

    async poolCosts(bytes, durationMs) {
      const takeNs = timed(durationMs, () => engine.pool.take(bytes, { zero: false }).dispose());
      const takeZeroedNs = timed(durationMs, () => engine.pool.take(bytes).dispose());
      const takeAndFillNs = timed(durationMs, () => {
        using memory = engine.pool.take(bytes, { zero: false });
        memory.bytes.fill(1);
      });
      const allocateAndFillNs = timed(durationMs, () => new Uint8Array(bytes).fill(1));
      return { takeNs, takeZeroedNs, takeAndFillNs, allocateAndFillNs };
    },

    async registrationCosts(bytes, durationMs) {
      await client.prepare({ bytes, lanes: 1, fill: serverSide });
      const sent = patterned(new Uint8Array(bytes), serverSide, 0);
      using perCall = engine.pool.take(bytes, { access: "read_write", keys: "call" });
      using perRegion = engine.pool.take(bytes, { access: "read_write", keys: "region" });
      const kinds = [perCall, perRegion].flatMap(({ region: lent }) => [
        { call: () => client.move({ op: "put", lane: 0, region: lent }), tookMs: [] as number[] },
        { call: () => client.hold({ region: lent }), tookMs: [] as number[] },
      ]);
      const madeBefore = registrationsMade(engine);
      const calls = await byTurns(kinds, durationMs);
      for (const { bytes: arrived } of [perCall, perRegion])
        if (Buffer.compare(arrived, sent) !== 0)
          throw new Error(`cinnabar ${url}: a put brought something else`);
      const made = registrationsMade(engine) - madeBefore;
      if (made !== 2 * calls + 1)
        throw new Error(`cinnabar ${url}: ${2 * calls + 1} registrations were due, ${made} were made`);
      const [callMoved = 0, callLent = 0, regionMoved = 0, regionLent = 0] = kinds.map(
        ({ tookMs }) => median(tookMs) * 1000,
      );
      return {
        moved: { call: callMoved, region: regionMoved },
        lent: { call: callLent, region: regionLent },
      };
    },

    async smallTransfers(bytes, durationMs) {
      await client.prepare({ bytes, lanes: 1 });
      const body = new Uint8Array(bytes);
      patterned(body, mySide, 0);
      using lent = engine.pool.take(bytes, { access: "read_write" });
      lent.bytes.set(body);
      using kept = engine.expose(Uint8Array.from(body), { access: "read_write", keys: "region" });
      const kinds = [
        () => client.carry({ body }),
        () => client.move({ op: "get", lane: 0, region: lent.region }),
        () => client.move({ op: "get", lane: 0, region: kept }),
      ].map((call) => ({ call, tookMs: [] as number[] }));
      await byTurns(kinds, durationMs);
      await client.prepare({ bytes, lanes: 1, verifyFirst: mySide });
      const [carryUs = 0, lendUs = 0, lendKeptUs = 0] = kinds.map(({ tookMs }) => median(tookMs) * 1000);
      const within = async (op: "get" | "put") => {
        const stretch = { durationMs: durationMs / 4 };
        const { transfers, elapsedMs } = await client.run({ op, inFlight: 1, stretch, region: kept });
        return (elapsedMs / transfers) * 1000;
      };
      return { carryUs, lendUs, lendKeptUs, getUs: await within("get"), putUs: await within("put") };
    },

    async prepareScatter(averageBytes) {
      for (const former of Object.values(scatter ?? {})) former.dispose();
      const bytes = pieces * averageBytes;
      const whole = new Uint8Array(bytes);
      const apart = new Uint8Array(bytes + pieces + 1);
      let at = 1;
      const views = oddLengths(averageBytes).map((length) => {
        const view = apart.subarray(at, at + length);
        at += length + 1;
        return view;
      });
      scatter = {
        contiguous: engine.expose(whole, { access: "read_write" }),
        scattered: engine.expose(views, { access: "read_write" }),
      };
      const once = { transfers: 1 };
      const mine = patterned(new Uint8Array(bytes), mySide, 0);
      whole.set(mine);
      let copied = 0;
      for (const view of views) {
        view.set(mine.subarray(copied, copied + view.byteLength));
        copied += view.byteLength;
      }
      const theirs = patterned(new Uint8Array(bytes), serverSide, 0);
      await client.prepare({ bytes, lanes: 1 });
      for (const lent of Object.values(scatter)) {
        await client.run({ op: "get", inFlight: 1, stretch: once, region: lent });
        await client.prepare({ bytes, lanes: 1, verifyFirst: mySide });
      }
      await client.prepare({ bytes, lanes: 1, fill: serverSide });
      for (const lent of Object.values(scatter))
        await client.run({ op: "put", inFlight: 1, stretch: once, region: lent });
      if (Buffer.compare(whole, theirs) !== 0 || Buffer.compare(Buffer.concat(views), theirs) !== 0)
        throw new Error(`cinnabar ${url}: a put into pieces brought something else`);
    },

    async scatter(op, kind, durationMs) {
      if (scatter === undefined) throw new Error("prepareScatter comes first");
      return client.run({ op, inFlight: 1, stretch: { durationMs }, region: scatter[kind] });
    },

    async smallCalls(beside) {
      const tookMs: number[] = [];
      let streaming = true;
      const stream =
        typeof beside === "number"
          ? new Promise<undefined>((resolve) => setTimeout(() => resolve(undefined), beside))
          : run(beside.op, beside.inFlight, { transfers: beside.transfers });
      const ended = stream.finally(() => {
        streaming = false;
      });
      while (streaming) {
        const begun = performance.now();
        await client.nothing({});
        tookMs.push(performance.now() - begun);
      }
      const streamed = await ended;
      const sorted = Float64Array.from(tookMs).sort();
      return {
        calls: sorted.length,
        p50Us: percentile(sorted, 0.5) * 1000,
        p99Us: percentile(sorted, 0.99) * 1000,
        streamBytesPerMs:
          streamed === undefined ? 0 : (slots.bytes * streamed.transfers) / streamed.elapsedMs,
      };
    },

    compute: async (isBusy) => busy.set(isBusy),
    address: async () => "",
    cpuUs: async () => cpuUs(),
    async close() {
      await engine.close();
      await server?.close();
    },
  };
}

interface TimedCall {
  readonly call: () => Promise<unknown>;
  readonly tookMs: number[];
}

/** Call by call in turn, so that a slow moment falls on all. Returns how often each was called, at least once. */
async function byTurns(kinds: readonly TimedCall[], durationMs: number): Promise<number> {
  const started = performance.now();
  let turns = 0;
  do {
    for (const { call, tookMs } of kinds) {
      const begun = performance.now();
      await call();
      tookMs.push(performance.now() - begun);
    }
    turns++;
  } while (performance.now() - started < durationMs);
  return turns;
}

function registrationsMade(engine: Engine): number {
  return engine.stats().ports.reduce((sum, port) => sum + port.registrationsMade, 0);
}

/** How long one of many takes, in nanoseconds. */
function timed(durationMs: number, once: () => void): number {
  const started = performance.now();
  let count = 0;
  do {
    once();
    count++;
  } while (performance.now() - started < durationMs);
  return ((performance.now() - started) / count) * 1e6;
}
