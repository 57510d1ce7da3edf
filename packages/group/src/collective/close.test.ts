import { Engine, type Region, type RpcError, service } from "cinnabar";
import { afterEach, describe, expect, it, vi } from "vitest";
import { staticAuthority } from "../authority/static-authority.ts";
import type { Group } from "../group/group.ts";
import { joinGroup } from "../group/join-group.ts";
import { type CollectiveCall, implementCollectives } from "./handlers.ts";
import { collective } from "./method.ts";
import { CollectiveError } from "./result.ts";

const Job = service("job.v1", {
  run: collective(),
  load: collective({ bulk: { maxBytes: 8 << 20 } }),
});
const size = 8;
/** 1, 2 and 4 are below 0. 5 and 6 are below 4, and 7 is below 6. */
const tree = { kind: "knomial", ratio: 2 } as const;
/** Nothing ends by its deadline. */
const options = { tree, timeoutMs: 3_600_000 };

interface Opened {
  readonly engine: Engine;
  readonly group: Group;
}

let members: Opened[] = [];
/** By rank: what lets the handler go, and the code that its signal has fired with. */
let begun: Map<number, () => void>;
let ended: Map<number, string>;

afterEach(async () => {
  await Promise.all(members.map(({ group }) => group.close()));
  await Promise.all(members.map(({ engine }) => engine.close()));
  members = [];
});

/** A group with handlers that go on until their signal fires, or the test releases them. */
async function openGroup(scheme: string): Promise<void> {
  [begun, ended] = [new Map(), new Map()];
  const hold = (_: unknown, { rank, signal }: CollectiveCall): Promise<void> =>
    new Promise((resolve) => {
      begun.set(rank, resolve);
      signal.addEventListener("abort", () => {
        ended.set(rank, (signal.reason as RpcError).code);
        resolve();
      });
    });
  const implementations = Array.from({ length: size }, () =>
    implementCollectives(Job, { run: hold, load: hold }),
  );
  const engines = await Promise.all(
    implementations.map((_, rank) => {
      const listen = scheme === "tcp" ? "tcp://127.0.0.1:0" : `${scheme}://closed-collectives-${rank}`;
      return Engine.open({ listen });
    }),
  );
  const authority = staticAuthority(engines.map(({ urls }) => ({ urls })));
  members = await Promise.all(
    engines.map(async (engine, rank) => {
      const group = await joinGroup("closed", { engine, authority, serve: [implementations[rank] as never] });
      return { engine, group };
    }),
  );
}

const at = (rank: number) => members[rank] as Opened;

/** What the call of rank 0 fails with, once all handlers run. */
async function begin(
  method: "run" | "load",
): Promise<{ readonly error: Promise<unknown>; readonly bulk: Region }> {
  const { engine, group } = at(0);
  const bulk = engine.expose(Buffer.alloc(4 << 20, 7), { access: "read" });
  const { run, load } = group.all(Job);
  const call = method === "run" ? run(options) : load({ ...options, bulk });
  const error = call.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  await vi.waitFor(() => expect(begun.size).toBe(size), 60_000);
  return { error, bulk };
}

const endAt = (ranks: readonly number[]) =>
  vi.waitFor(() => expect([...ended.keys()].sort()).toEqual(ranks), 60_000);

describe.each(["mem", "tcp"])("groups that are closed during a call, over %s", (scheme) => {
  it.each(["run", "load"] as const)("end %s at an inner member and all below it", async (method) => {
    await openGroup(scheme);
    const { error, bulk } = await begin(method);
    void at(4).group.close();
    await endAt([4, 5, 6, 7]);
    expect([4, 5, 6, 7].map((rank) => ended.get(rank))).toEqual([
      "unavailable",
      "cancelled",
      "cancelled",
      "cancelled",
    ]);
    for (const rank of [0, 1, 2, 3]) begun.get(rank)?.();
    const reason = await error;
    expect(reason).toBeInstanceOf(CollectiveError);
    const { ok, failed } = (reason as CollectiveError).result;
    expect(ok).toEqual([0, 1, 2, 3]);
    expect([...failed.keys()]).toEqual([4, 5, 6, 7]);
    for (const failure of failed.values())
      expect(failure).toMatchObject({ code: "unavailable", message: "the group was closed" });
    bulk.dispose();
  });

  it("end it everywhere at the root, also when the engine closes at once", async () => {
    await openGroup(scheme);
    const { error, bulk } = await begin("run");
    const { group, engine } = at(0);
    void group.close();
    void engine.close();
    await endAt([0, 1, 2, 3, 4, 5, 6, 7]);
    expect(await error).toMatchObject({ code: "unavailable" });
    bulk.dispose();
  });
});
