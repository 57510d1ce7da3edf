import { bulk, implement, RemoteRegion, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { grantOf } from "../../src/memory/remote-region.ts";
import { pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { isSecured } from "../matrix/secured.ts";
import { deferred, failure } from "../matrix/wait.ts";

const Hole = service("hole.v1", {
  run: unary({ input: z.object({ kind: z.string(), into: bulk("read") }), output: z.unknown() }),
  wait: unary({ timeoutMs: 60_000 }),
});

type Change = Partial<{ bytes: number; shift: bigint; key: bigint; access: number }>;

/** A handle on the same memory that claims more than was granted. */
function forged(region: RemoteRegion, { bytes, shift = 0n, key, access = 3 }: Change) {
  const { call, segments } = grantOf(region);
  const [first] = segments;
  if (first === undefined) throw new Error("an empty region cannot be forged");
  const length = bytes ?? region.byteLength;
  const segment = { key: key ?? first.key, address: first.address + shift, bytes: length };
  return new RemoteRegion<"read_write">(call, { bytes: length, access, segments: [segment] });
}

const forgeries: Record<string, readonly [Change, "get" | "put", string]> = {
  "beyond what was lent": [{ bytes: 1 << 20 }, "get", "out_of_range"],
  "by a key that was never given out": [{ key: 0x5555n }, "get", "permission_denied"],
  "for writing, what was lent for reading": [{}, "put", "permission_denied"],
};

describe.each(transports)("a transfer that its owner refuses over $name", (provider) => {
  it.each(Object.entries(forgeries))(
    "%s hears why, and neither side waits for what is lost",
    async (_, [change, op, code]) => {
      const refusedWith = deferred<{ code: string; message: string }>();
      const { api, client, server } = await pair(
        provider,
        [
          implement(Hole, {
            async run({ into }, call) {
              const local = new Uint8Array(change.bytes ?? into.byteLength);
              const remote = forged(into as RemoteRegion, change);
              const error = await failure(op === "get" ? call.get(remote, local) : call.put(local, remote));
              refusedWith.resolve(error);
              return error.code;
            },
            wait: (_input, call) =>
              new Promise((_resolve, reject) => {
                call.signal.addEventListener("abort", () => reject(call.signal.reason));
              }),
          }),
        ],
        { endsHard: true },
      );
      // Lent whole pages, so that what lies beyond is not there by chance.
      using into = client.expose(new Uint8Array(4096), { access: "read" });
      const controller = new AbortController();
      const waiting = api(Hole).wait.result({ signal: controller.signal });
      const call = api(Hole).run.result({ kind: "forged", into });
      expect(await refusedWith.promise).toMatchObject({ code });
      const result = await call;
      // The owner of sealed bulk refuses by its answer.
      if (provider.hasConnections && !isSecured) {
        // The connection is gone: both sides say so at once, the calls' own deadlines are far away.
        // The handler's own answer may have left before.
        if (!result.ok) expect(result.error.code).toBe("unavailable");
        expect(await waiting).toMatchObject({ ok: false, error: { code: "unavailable" } });
        expect(server.stats().calls.in).toBe(0);
      } else {
        expect(result).toMatchObject({ ok: true, value: code });
        controller.abort();
        await waiting;
      }
      // The next call opens a session anew.
      const again = api(Hole).wait.result({ timeoutMs: 50 });
      expect(await again).toMatchObject({ ok: false, error: { code: "deadline_exceeded" } });
    },
  );
});
