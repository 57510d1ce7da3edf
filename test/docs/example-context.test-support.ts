import { createReadStream, createWriteStream, readFileSync, writeFileSync } from "node:fs";
import { type FileHandle, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { Readable } from "node:stream";
import {
  type BalancedPeer,
  bulk,
  type CallContext,
  type Client,
  type Engine,
  handle,
  type Implementation,
  type Peer,
  type Region,
  type RegionHandle,
  type RemoteRegion,
  service,
  unary,
} from "cinnabar";
import { bulkStream, type RemoteStream } from "cinnabar-bulk";
import { type Authority, collective, type Group, type GroupImplementation } from "cinnabar-group";
import type { Variable } from "cinnabar-group/variables";
import type { fastifyPlugin, OpenApiOptions } from "cinnabar-http";
import type { EngineMetrics } from "cinnabar-otel";
import { z } from "zod";

// What the examples of docstrings use without declaring it. Only the types count: nothing of this runs.

export {
  createReadStream,
  createServer,
  createWriteStream,
  Readable,
  readFileSync,
  writeFile,
  writeFileSync,
};

export const Greeter = service("greeter.v1", {
  greet: unary({
    input: z.object({ name: z.string() }),
    output: z.object({ text: z.string() }),
    errors: { NameIsEmpty: z.object({ hint: z.string() }) },
    idempotent: true,
  }),
});
export const Files = service("files.v1", {
  stat: unary({
    input: z.object({ path: z.string() }),
    output: z.object({ bytes: z.int() }),
    errors: { NotFound: z.object({ path: z.string() }) },
    idempotent: true,
  }),
  upload: unary({ input: z.object({ name: z.string(), content: bulkStream("read") }) }),
});
export const Sums = service("sums.v1", {
  sum: unary({ input: z.object({ numbers: bulk("read") }), output: z.object({ sum: z.number() }) }),
});
export const Cache = service("cache.v1", {
  find: unary({ input: z.object({ key: z.string() }), output: z.object({ page: handle("read") }) }),
});

/** A client in one example, what is served in another. */
export declare const greeter: Client<typeof Greeter> & Implementation;
export declare const files: Client<typeof Files> & Implementation;
export declare const cache: Client<typeof Cache>;
export declare const sums: Client<typeof Sums>;

export declare const fastify: {
  register(plugin: ReturnType<typeof fastifyPlugin>, options: { prefix: string }): Promise<void>;
};
export declare const options: Pick<OpenApiOptions, "services" | "allow">;
export declare const engine: Engine;
export declare const verifyToken: (token: string | undefined, method: string) => Promise<boolean>;
export declare const peer: Peer;
export declare const backends: BalancedPeer;
export declare const call: CallContext;
export declare const signal: AbortSignal;

export declare const region: RemoteRegion<"read"> & RemoteRegion<"write">;
export declare const counter: RemoteRegion<"read_write">;
export declare const content: RemoteStream<"read"> & RemoteStream<"write">;
export declare const memory: Uint8Array;
export declare const pixels: Uint8Array;
export declare const frame: number;
export declare const exposed: Region<"read">;
export declare const shared: RegionHandle<"read">;
export declare const file: FileHandle;
export declare const path: string;
export declare const key: string;

// Of groups and metrics.
export const Store = service("store.v1", {
  read: unary({ input: z.object({ key: z.string() }), output: z.object({ value: z.string() }) }),
  usage: collective({
    input: z.object({ pool: z.string() }),
    output: z.object({ bytes: z.number(), members: z.number() }),
    reduce: (a, b) => ({ bytes: a.bytes + b.bytes, members: a.members + b.members }),
  }),
});
export const Limits = z.object({ maxBytes: z.int() });
export declare const authority: Authority;
export declare const group: Group;
export declare const store: GroupImplementation;
export declare const pools: ReadonlyMap<string, { readonly bytes: number }>;
export declare const values: ReadonlyMap<string, string>;
export declare const limits: Variable<typeof Limits>;
export declare const apply: (value: z.infer<typeof Limits>) => void;
export declare const launch: { readonly rank: number };
export declare const job: string;
export declare const seen: number;
export declare const metrics: EngineMetrics;
