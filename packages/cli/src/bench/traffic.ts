import { type Engine, type Metadata, type Peer, type Region, RpcError } from "cinnabar/standard";
import { UsageError } from "../command.ts";
import type { Connection } from "../connection.ts";
import { parsedJson, valueOfJson } from "../json-values.ts";
import { clientOf, methodName, remoteMethod } from "../remote-method.ts";
import { Bench, cpuUs } from "./server.ts";

/** What a run calls: one client of one server. */
export interface Target {
  /** The URL of the server. */
  readonly url: string;
  /** Makes one call, and resolves to the bytes that it moved. The signal ends it. */
  call(signal: AbortSignal): Promise<number>;
}

/** How bytes go: in messages of one or both directions, or between the memory of both sides. */
export const ways = {
  both: "echo",
  input: "take",
  output: "give",
  from: "get",
  into: "put",
} as const;

export type Way = keyof typeof ways;

/** Calls of `bench serve`. `size` draws the bytes of each. */
export function benchTarget(
  { engine, timeoutMs }: Connection,
  peer: Peer,
  way: Way,
  size: () => number,
  metadata: Metadata | undefined,
): Target {
  const { url } = peer;
  const client = peer.client(Bench, { timeoutMs });
  // What is sent does not matter, and filling it would be the work of the generator.
  let filled = Buffer.alloc(0);
  const content = () => {
    const bytes = Math.round(size());
    if (filled.length < bytes) filled = Buffer.alloc(bytes);
    return filled.subarray(0, bytes);
  };
  const calls: Readonly<Record<Way, Target["call"]>> = {
    async both(signal) {
      const sent = content();
      return sent.length + (await client.echo(sent, { signal, metadata })).length;
    },
    async input(signal) {
      const sent = content();
      await client.take(sent, { signal, metadata });
      return sent.length;
    },
    async output(signal) {
      return (await client.give(Math.round(size()), { signal, metadata })).length;
    },
    from: (signal) =>
      withMemory(engine, size(), "read", (region) => client.get({ from: region }, { signal, metadata })),
    into: (signal) =>
      withMemory(engine, size(), "write", (region) => client.put({ into: region }, { signal, metadata })),
  };
  return { url, call: calls[way] };
}

/** Lends memory of the pool to a call, and resolves to its length. */
async function withMemory<A extends "read" | "write">(
  engine: Engine,
  size: number,
  access: A,
  call: (region: Region<A>) => Promise<void>,
): Promise<number> {
  const bytes = Math.max(1, Math.round(size));
  const memory = engine.pool.take(bytes, { access, zero: false });
  try {
    await call(memory.region);
  } finally {
    memory.dispose();
  }
  return bytes;
}

/** A method to load, with the JSON of its input. */
export interface LoadedMethod {
  readonly name: string;
  readonly input: string | undefined;
  readonly allowWrites: boolean;
  readonly contract: string | undefined;
  readonly metadata: Metadata | undefined;
}

/** Calls of a unary method. @throws UsageError for another kind, and for one that is not idempotent. */
export async function methodTarget(
  peer: Peer,
  connection: Connection,
  { name, input: given, allowWrites, contract, metadata }: LoadedMethod,
): Promise<Target> {
  const target = await remoteMethod(peer, connection, methodName(name), contract);
  const { kind, idempotent, input } = target.method;
  if (kind !== "unary") throw new UsageError(`--method must be unary, and ${target.path} is ${kind}`);
  if (!idempotent && !allowWrites)
    throw new UsageError(
      `${target.path} is not idempotent: give --allow-writes if calling it often does no harm`,
    );
  const client = clientOf(peer, target);
  const args = input === undefined ? [] : [valueOfJson(parsedJson(given ?? "{}", "--input"), input, "input")];
  const { timeoutMs } = connection;
  return {
    url: peer.url,
    async call(signal) {
      await client(...args, { signal, timeoutMs, metadata });
      return 0;
    },
  };
}

/** Processor time of this process, and of servers that report theirs, in microseconds. */
export interface Used {
  readonly clientUs: number;
  /** Undefined: at least one server does not report it. */
  readonly serverUs: number | undefined;
}

export async function used(peers: readonly Peer[], timeoutMs: number): Promise<Used> {
  const told = await Promise.all(
    peers.map(async (peer) => {
      if (!peer.services.includes(Bench.name)) return undefined;
      try {
        return await peer.client(Bench, { timeoutMs }).cpu();
      } catch (error) {
        if (error instanceof RpcError) return undefined;
        throw error;
      }
    }),
  );
  const known = told.filter((us) => us !== undefined);
  const serverUs = known.length < peers.length ? undefined : known.reduce((sum, us) => sum + us, 0);
  return { clientUs: cpuUs(), serverUs };
}
