import { createHash, randomBytes } from "node:crypto";
import { Engine, service } from "cinnabar";
import { afterEach, expect, it, vi } from "vitest";
import { z } from "zod";
import { staticAuthority } from "../authority/static-authority.ts";
import { joinGroup } from "../group/join-group.ts";
import { implementCollectives } from "./handlers.ts";
import { collective } from "./method.ts";

const Models = service("models.v1", {
  load: collective({
    output: z.array(z.string()),
    reduce: (one, other) => [...one, ...other],
    bulk: { maxBytes: 16 << 20 },
  }),
});
const size = 5;
const sha = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");
const open: AsyncDisposable[] = [];

afterEach(async () => {
  for (const each of open.splice(0).reverse()) await each[Symbol.asyncDispose]();
});

it.each(["sealed", "plain"] as const)(
  "a region goes down a tree of tcp whose sessions have %s bulk",
  async (bulk) => {
    const key = randomBytes(32);
    const security = { psk: { identity: "member", key, lookup: () => key }, bulk } as const;
    const models = Array.from({ length: size }, () =>
      implementCollectives(Models, { load: (_, call) => [`${call.rank} ${sha(call.bulk)}`] }),
    );
    const engines = await Promise.all(
      models.map(() => Engine.open({ listen: "tcp://127.0.0.1:0", connectTimeoutMs: 20_000, security })),
    );
    open.push(...engines);
    const authority = staticAuthority(engines.map(({ urls }) => ({ urls })));
    const groups = await Promise.all(
      engines.map(async (engine, rank) => {
        const group = await joinGroup("models", {
          engine,
          authority,
          serve: [models[rank] as (typeof models)[0]],
        });
        open.push(group);
        return group;
      }),
    );
    // Two pieces and a part of a third.
    const bytes = randomBytes((5 << 20) + 4097);
    const region = (engines[0] as Engine).expose(bytes, { access: "read" });
    const tree = { kind: "knomial", ratio: 2 } as const;
    const { value, ok } = await (groups[0] as (typeof groups)[0])
      .all(Models)
      .load({ bulk: region, tree, timeoutMs: 60_000, checksum: "crc32c" });
    const ranks = Array.from({ length: size }, (_, rank) => rank);
    expect([...ok].sort()).toEqual(ranks);
    expect([...value].sort()).toEqual(ranks.map((rank) => `${rank} ${sha(bytes)}`));
    region.dispose();
    for (const each of groups) await each.close();
    await vi.waitFor(() => {
      for (const engine of engines) expect(engine.stats().pool.takenBytes).toBe(0);
    }, 60_000);
  },
);
