import { implement, type Middleware, service, unary } from "cinnabar";
import { describe, expect, it, vi } from "vitest";
import { z } from "zod";
import { currentUser, requireToken, sendToken } from "../../examples/middleware/bearer-token.ts";
import { cache } from "../../examples/middleware/cache.ts";
import { logging } from "../../examples/middleware/logging.ts";
import { tenantLimit } from "../../examples/middleware/tenant-limit.ts";
import { pair } from "../matrix/pair.ts";
import { providers } from "../matrix/providers.ts";
import { isSecured } from "../matrix/secured.ts";
import { deferred, failure } from "../matrix/wait.ts";

const Notes = service("notes.v1", {
  read: unary({
    input: z.object({ n: z.number() }),
    output: z.string(),
    errors: { NotFound: z.object({ n: z.number() }) },
    idempotent: true,
  }),
  write: unary({ output: z.string() }),
});

const [mem] = providers as [(typeof providers)[number]];

function over(middleware: readonly Middleware[], gate: Promise<void> = Promise.resolve()) {
  let reads = 0;
  const notes = implement(
    Notes,
    {
      read: ({ n }, call) => (n < 0 ? call.fail("NotFound", { n }) : `note ${n}, read ${++reads}`),
      write: async (_, call) => {
        await gate;
        return call.context.get(currentUser)?.id ?? "nobody";
      },
    },
    { middleware },
  );
  return pair(mem, [notes]);
}

describe("the example of", () => {
  it("logging prints method, outcome and time, on both sides", async () => {
    const lines: string[] = [];
    const log = logging((line) => lines.push(line));
    const refuse: Middleware = () => {
      throw new Error("no");
    };
    const { api } = await over([log]);
    await api(Notes, { middleware: [log] }).read({ n: 1 });
    expect(await failure(api(Notes, { middleware: [log, refuse] }).read({ n: 1 }))).toMatchObject({
      code: "internal",
    });
    expect(await failure(api(Notes, { middleware: [log] }).read({ n: -1 }))).toMatchObject({
      reason: "NotFound",
    });
    expect(lines.map((line) => line.replace(/[\d.]+ ms$/, "T ms"))).toEqual([
      "server notes.v1/read ok T ms",
      "client notes.v1/read ok T ms",
      "client notes.v1/read failed T ms",
      "server notes.v1/read failed_precondition NotFound T ms",
      "client notes.v1/read failed_precondition NotFound T ms",
    ]);
  });

  it("a bearer token refuses strangers, and gets a new token once", async () => {
    const { api } = await over([
      requireToken(async (token) => (token === "good" ? { id: "ada" } : undefined)),
    ]);
    expect(await failure(api(Notes).write())).toMatchObject({ code: "unauthenticated" });
    const token = vi.fn(async (refresh: boolean) => (refresh ? "good" : "old"));
    expect(await api(Notes, { middleware: [sendToken(token)] }).write()).toBe("ada");
    expect(token.mock.calls).toEqual([[false], [true]]);
    const never = sendToken(async () => "old");
    expect(await failure(api(Notes, { middleware: [never] }).write())).toMatchObject({
      code: "unauthenticated",
    });
  });

  it.skipIf(isSecured)("a bearer token is not sent where somebody could read it", async () => {
    const [tcp] = providers.filter(({ scheme }) => scheme === "tcp") as [(typeof providers)[number]];
    const seen: unknown[] = [];
    const notes = implement(Notes, {
      read: () => "",
      write(_, call) {
        seen.push(call.metadata.get("authorization"));
        return "";
      },
    });
    const { api, peer } = await pair(tcp, [notes]);
    const token = vi.fn(async () => "good");
    expect(peer.isConfidential).toBe(false);
    expect(await failure(api(Notes, { middleware: [sendToken(token)] }).write())).toMatchObject({
      code: "failed_precondition",
      message: expect.stringContaining("over an unsealed session"),
    });
    expect(token).not.toHaveBeenCalled();
    expect(seen).toEqual([]);
  });

  it("a tenant's limit refuses its calls, and no other's", async () => {
    const gate = deferred();
    const { api } = await over([tenantLimit(2)], gate.promise);
    const of = (tenant: string) => api(Notes, { metadata: { "x-tenant": tenant } });
    const running = [of("a").write(), of("a").write()];
    expect(await failure(of("a").write())).toMatchObject({ code: "resource_exhausted", retryAfterMs: 50 });
    running.push(of("b").write());
    gate.resolve();
    expect(await Promise.all(running)).toHaveLength(3);
    expect(await of("a").write()).toBe("nobody");
  });

  it("a cache answers idempotent methods again, until they are too old", async () => {
    vi.useFakeTimers({ toFake: ["Date"] });
    try {
      const { api } = await over([]);
      const client = api(Notes, { middleware: [cache(1000, 2)] });
      expect(await client.read({ n: 1 })).toBe("note 1, read 1");
      expect(await client.read({ n: 1 })).toBe("note 1, read 1");
      vi.setSystemTime(Date.now() + 1001);
      expect(await client.read({ n: 1 })).toBe("note 1, read 2");
      await client.read({ n: 2 });
      await client.read({ n: 3 });
      expect(await client.read({ n: 1 })).toBe("note 1, read 5");
      expect(await client.write()).toBe("nobody");
    } finally {
      vi.useRealTimers();
    }
  });
});
