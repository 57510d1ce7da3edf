import { implement, type RemoteRegion, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { fill, firstWrong } from "../bulk/support/pattern.ts";
import { pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";

const Pieces = service("pieces.v1", { run: unary({ input: z.unknown(), output: z.unknown() }) });

const pieces = 1000;
/** Shorter than what soft-iWARP sends in a header, and no divisor of a page: some cross the end of one, unevenly. */
const pieceBytes = 23;
const bytes = pieces * pieceBytes;

/** Pieces with a byte between them, so that no two are moved as one. */
function scattered(): Uint8Array[] {
  const memory = new Uint8Array(pieces * (pieceBytes + 1));
  return Array.from({ length: pieces }, (_, i) =>
    memory.subarray(i * (pieceBytes + 1)).subarray(0, pieceBytes),
  );
}

// The kernel's soft-iWARP sent other bytes in their place, and every call succeeded.
describe.each(transports)("short pieces that cross pages over $name", (provider) => {
  it("arrive as they were, both ways", { timeout: 60_000 }, async () => {
    const { api, client } = await pair(provider, [
      implement(Pieces, {
        run: async (input, call) => {
          const { from, into } = input as { from: RemoteRegion<"read">; into: RemoteRegion<"write"> };
          const views = scattered();
          await call.get(from, views);
          const wrong = firstWrong(Uint8Array.from(Buffer.concat(views)), 3);
          for (const view of views) view.reverse();
          await call.put(views, into);
          return wrong;
        },
      }),
    ]);
    const source = new Uint8Array(bytes);
    fill(source, 3);
    const target = scattered();
    using from = client.expose(source, { access: "read" });
    using into = client.expose(target, { access: "write" });
    expect(await api(Pieces, { timeoutMs: 60_000 }).run({ from, into })).toBe(-1);
    for (const view of target) view.reverse();
    expect(firstWrong(Uint8Array.from(Buffer.concat(target)), 3)).toBe(-1);
  });
});
