import { type CallContext, Engine, implement } from "cinnabar";
import { readable, writable } from "cinnabar-bulk";
import { heartbeatMs } from "../bulk/contract.ts";
import { cpuUs } from "../echo/usage.ts";
import type { Party } from "../suite/child.ts";
import { ByBulkStream, ByItems, ByWebStreams, ByWideItems } from "./contract.ts";
import { serveNet } from "./net.ts";
import { patternedPiece, pieces } from "./pieces.ts";
import { readableOf, written } from "./web.ts";

/** A process that takes, gives and sends back bytes. */
export interface ByteServer extends Party {
  address(): Promise<string>;
  /** Processor time that the process has used since it started. */
  cpuUs(): Promise<number>;
}

/** `where`: the URL for Cinnabar, "tcp" or "unix" for node:net. */
export async function open(where: string): Promise<ByteServer> {
  const { address, close } = where.includes("://") ? await serveCinnabar(where) : await serveNet(where);
  return { address: async () => address, cpuUs: async () => cpuUs(), close };
}

async function total(parts: AsyncIterable<Uint8Array>): Promise<{ bytes: number }> {
  let bytes = 0;
  for await (const part of parts) bytes += part.byteLength;
  return { bytes };
}

async function serveCinnabar(listen: string) {
  const items = {
    take: total,
    give: ({ pieceBytes, durationMs }: { pieceBytes: number; durationMs: number }) =>
      pieces(patternedPiece(pieceBytes), durationMs),
    async *bounce(sent: AsyncIterable<Uint8Array>) {
      yield* sent;
    },
  };
  const engine = await Engine.open({
    heartbeatMs,
    listen,
    serve: [
      implement(ByBulkStream, {
        take: ({ from }, call) => total(readable(call, from)),
        async give({ into, pieceBytes, durationMs }, call) {
          const writer = writable(call, into).getWriter();
          let bytes = 0;
          for (const piece of pieces(patternedPiece(pieceBytes), durationMs)) {
            await writer.write(piece);
            bytes += piece.byteLength;
          }
          await writer.close();
          return { bytes };
        },
        async bounce({ from, into }, call: CallContext) {
          await readable(call, from).pipeTo(writable(call, into));
          return {};
        },
      }),
      implement(ByItems, items),
      implement(ByWideItems, items),
      implement(ByWebStreams, {
        take: (sent) => total(readableOf(sent)),
        give({ pieceBytes, durationMs }) {
          const { writable, items } = written();
          const writer = writable.getWriter();
          const write = async () => {
            for (const piece of pieces(patternedPiece(pieceBytes), durationMs)) await writer.write(piece);
            await writer.close();
          };
          // The caller may give up: then the writer rejects, and nobody is left who would read.
          write().catch(() => {});
          return items;
        },
        bounce(sent) {
          const { writable, items } = written();
          readableOf(sent)
            .pipeTo(writable)
            .catch(() => {});
          return items;
        },
      }),
    ],
  });
  return { address: engine.urls[0] ?? "", close: () => engine.close() };
}
