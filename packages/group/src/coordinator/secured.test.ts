import { Engine, implement, service, unary } from "cinnabar";
import { afterEach, expect, it, vi } from "vitest";
import { z } from "zod";
import { joinGroup } from "../group/join-group.ts";
import { GroupHost } from "../host/group-host.ts";
import { coordinatorAuthority } from "./coordinator-authority.ts";

const Who = service("who.v1", { hello: unary({ output: z.string(), idempotent: true }) });
const hello = implement(Who, {
  hello: (_, { identity }) => `${identity?.kind} ${identity?.kind === "psk" ? identity.name : ""}`,
});
const open: AsyncDisposable[] = [];
/** A key for each process, by its name. */
const keyOf = (name: string) => Buffer.alloc(32, name);

afterEach(async () => {
  for (const each of open.splice(0).reverse()) await each[Symbol.asyncDispose]();
});

/** A process that takes members by their name, and shows its own. */
async function openEngine(name: string): Promise<{ engine: Engine; host: GroupHost }> {
  const host = new GroupHost();
  const engine = await Engine.open({
    listen: "tcp://127.0.0.1:0",
    connectTimeoutMs: 20_000,
    serve: [hello, ...host.serve],
    middleware: host.middleware,
    security: {
      psk: { identity: name, key: keyOf(name), lookup: keyOf },
      allow: (identity) => identity?.kind === "psk" && identity.name.startsWith("member"),
    },
  });
  open.push(engine);
  return { engine, host };
}

it("a group of sealed engines takes those in that its members' engines permit, and nobody else", async () => {
  const first = await openEngine("member-1");
  const seeds = [first.engine.urls[0] as string];
  const authority = coordinatorAuthority({ seeds, refreshMs: 50 });
  const join = async ({ engine, host }: Awaited<ReturnType<typeof openEngine>>, signal?: AbortSignal) => {
    const group = await joinGroup("vault", { engine, host, authority, ...(signal && { signal }) });
    open.push(group);
    return group;
  };
  const one = await join(first);
  const two = await join(await openEngine("member-2"));
  await one.when(({ members }) => members.length === 2);
  expect(await two.at(0).client(Who).hello(undefined, { timeoutMs: 20_000 })).toBe("psk member-2");
  // It would try again until its time is over.
  const given = new AbortController();
  const joining = join(await openEngine("stranger-1"), given.signal);
  const refused = () => first.engine.stats().security.refusals.not_allowed ?? 0;
  await vi.waitFor(() => expect(refused()).toBeGreaterThan(0), { timeout: 20_000, interval: 5 });
  given.abort(new Error("enough"));
  await expect(joining).rejects.toThrow();
  expect([one, two].map(({ view }) => view.members.length)).toEqual([2, 2]);
});
