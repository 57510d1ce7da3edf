import type { Party } from "../suite/child.ts";
import { shares } from "../suite/figure.ts";
import { percentile } from "../suite/statistics.ts";
import type { Connection } from "./contender.ts";
import { loadContender } from "./index.ts";
import { binary, type Payload, payloads, smallObject } from "./payloads.ts";

export interface Measured {
  readonly calls: number;
  readonly elapsedMs: number;
  /** Processor time of the client's process. */
  readonly cpuUs: number;
  /** The part of it outside the kernel. */
  readonly userUs: number;
  /** Quantiles of the latencies in µs, at `shares`. */
  readonly quantilesUs: readonly number[];
}

/**
 * A contender's client, in a process of its own: it has the clock, so that nothing of another contender weighs on what
 * it measures.
 */
export interface ClientParty extends Party {
  /** Rejects when something else comes back than was sent. */
  check(): Promise<void>;
  /** So many callers, each of which waits for its answer before it asks again. */
  measure(payload: Payload, inFlight: number, durationMs: number): Promise<Measured>;
}

/**
 * With many in flight, how many calls of one caller share one look at the clock, which itself costs as much as a tenth
 * of the fastest call.
 */
const callsPerLook = 8;

export async function open(
  key: string,
  id: string,
  address: string,
  verbsHost?: string,
): Promise<ClientParty> {
  const connection = await (await loadContender(key, id, verbsHost)).connect(address);
  return {
    async check() {
      for (const payload of payloads) await checkEcho(connection, payload);
    },

    measure: (payload, inFlight, durationMs) =>
      measureCallers(caller(connection, payload), inFlight, durationMs),

    close: () => connection.close(),
  };
}

/** So many callers, each of which waits for its answer before it asks again. */
export async function measureCallers(
  call: () => Promise<unknown>,
  inFlight: number,
  durationMs: number,
): Promise<Measured> {
  const latenciesUs: number[] = [];
  const perLook = inFlight === 1 ? 1 : callsPerLook;
  let calls = 0;
  let goesOn = true;
  // Slow contenders are stopped by the timer, and those that leave timers no turn by their own look at the clock.
  const timer = setTimeout(() => {
    goesOn = false;
  }, durationMs);
  const before = process.cpuUsage();
  const started = performance.now();
  const lane = async () => {
    do {
      const begun = performance.now();
      await call();
      const ended = performance.now();
      latenciesUs.push((ended - begun) * 1000);
      calls++;
      if (ended - started > durationMs) goesOn = false;
      for (let more = 1; more < perLook && goesOn; more++) {
        await call();
        calls++;
      }
    } while (goesOn);
  };
  await Promise.all(Array.from({ length: inFlight }, lane));
  const elapsedMs = performance.now() - started;
  clearTimeout(timer);
  const { user, system } = process.cpuUsage(before);
  const sorted = Float64Array.from(latenciesUs).sort();
  return {
    calls,
    elapsedMs,
    cpuUs: user + system,
    userUs: user,
    quantilesUs: shares.map((share) => percentile(sorted, share)),
  };
}

function caller(connection: Connection, payload: Payload): () => Promise<unknown> {
  if (payload === "small") return () => connection.echo(smallObject);
  const bytes = binary(payload);
  return () => connection.bytes(bytes);
}

async function checkEcho(connection: Connection, payload: Payload): Promise<void> {
  if (payload === "small") {
    const { id, name, text } = await connection.echo(smallObject);
    if (JSON.stringify({ id, name, text }) === JSON.stringify(smallObject)) return;
  } else {
    const sent = binary(payload);
    if (Buffer.compare(await connection.bytes(sent), sent) === 0) return;
  }
  throw new Error(`something else than what was sent comes back: ${payload}`);
}
