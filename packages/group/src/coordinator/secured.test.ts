import { Engine, implement, type SecurityOptions, service, unary } from "cinnabar";
import { afterEach, describe, expect, it } from "vitest";
import { z } from "zod";
import type { Group } from "../group/group.ts";
import { createGroup, type JoinOptions, joinGroup, observeGroup } from "../group/join-group.ts";
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

interface Process {
  readonly engine: Engine;
}

/** A process that takes members by their name, and shows its own. */
async function openEngine(name: string, change: Partial<SecurityOptions> = {}): Promise<Process> {
  const engine = await Engine.open({
    listen: "tcp://127.0.0.1:0",
    connectTimeoutMs: 20_000,
    security: {
      psk: { identity: name, key: keyOf(name), lookup: keyOf },
      allow: (identity) => identity?.kind === "psk" && identity.name.startsWith("member"),
      ...change,
    },
  });
  open.push(engine);
  return { engine };
}

async function join(
  { engine }: Process,
  seeds: readonly string[],
  options: Partial<JoinOptions> = {},
): Promise<Group> {
  // A refused process would otherwise try again until its time is over.
  const authority = coordinatorAuthority({ seeds, refreshMs: 50, joinTimeoutMs: 300_000 });
  const group = await joinGroup("vault", { engine, authority, serve: [hello], ...options });
  open.push(group);
  return group;
}

const urlOf = ({ engine }: Process) => engine.urls[0] as string;

describe("a group of sealed engines", () => {
  it("takes those in that its members' engines permit, and nobody else", async () => {
    const first = await openEngine("member-1");
    const seeds = [urlOf(first)];
    const one = await join(first, seeds);
    const two = await join(await openEngine("member-2"), seeds);
    await one.when(({ members }) => members.length === 2);
    expect(await two.at(0).client(Who).hello({ timeoutMs: 20_000 })).toBe("psk member-2");
    const stranger = await openEngine("stranger-1");
    const refused = {
      code: "permission_denied",
      message: expect.stringContaining(
        `group "vault": the request to ${seeds[0]} failed: the caller is not permitted to call cinnabar.membership.v1/join`,
      ),
    };
    await expect(join(stranger, seeds)).rejects.toMatchObject(refused);
    const authority = coordinatorAuthority({ seeds, joinTimeoutMs: 300_000 });
    await expect(createGroup("vault", { ...stranger, authority })).rejects.toMatchObject({
      code: "permission_denied",
    });
    await expect(observeGroup("vault", { ...stranger, authority })).rejects.toMatchObject({
      code: "permission_denied",
      message: expect.stringContaining("cinnabar.membership.v1/view"),
    });
    expect([one, two].map(({ view }) => view.members.length)).toEqual([2, 2]);
  });

  it("refuses a process that has not proven who it is", async () => {
    const first = await openEngine("member-1");
    const one = await join(first, [urlOf(first)]);
    const key = Buffer.alloc(32, "guessed");
    const impostor = await openEngine("member-2", { psk: { identity: "member-2", key, lookup: () => key } });
    await expect(join(impostor, [urlOf(first)])).rejects.toMatchObject({ code: "unauthenticated" });
    expect(one.view.members.length).toBe(1);
  });

  it("takes a process in that one seed refuses and another permits", async () => {
    const wary = await openEngine("member-1", { allow: () => false });
    const trusting = await openEngine("member-2");
    const seeds = [urlOf(wary), urlOf(trusting)];
    const one = await createGroup("vault", {
      ...trusting,
      authority: coordinatorAuthority({ seeds: [urlOf(trusting)] }),
    });
    const three = await join(await openEngine("member-3"), seeds);
    expect(three.view.members.length).toBe(2);
    await one.close();
  });

  it("refuses by its coordinator whom another member sends there", async () => {
    const first = await openEngine("member-1", {
      allow: (identity) => identity?.kind === "psk" && identity.name !== "member-3",
    });
    const second = await openEngine("member-2");
    await join(first, [urlOf(first)]);
    await join(second, [urlOf(first)]);
    await expect(join(await openEngine("member-3"), [urlOf(second)])).rejects.toMatchObject({
      code: "permission_denied",
      message: expect.stringContaining(urlOf(first)),
    });
  });

  it("lets an observer that may not follow its views ask for them, and tells it when it may not ask either", async () => {
    let mayView = true;
    let follows = 0;
    const wary: Partial<SecurityOptions> = {
      allow: () => true,
      authorize: ({ identity, method }) => {
        if (identity?.kind === "psk" && identity.name.startsWith("member")) return true;
        if (method === "cinnabar.membership.v1/follow") follows += 1;
        return mayView && method === "cinnabar.membership.v1/view";
      },
    };
    const first = await openEngine("member-1", wary);
    const seeds = [urlOf(first)];
    await join(first, seeds);
    const { engine } = await openEngine("observer-1");
    const authority = coordinatorAuthority({ seeds, refreshMs: 50 });
    const seen = await observeGroup("vault", { engine, authority });
    open.push(seen);
    const second = await join(await openEngine("member-2", wary), seeds);
    await seen.when(({ members }) => members.length === 2);
    await second.leave();
    const askedBefore = follows;
    await seen.when(({ members }) => members.length === 1);
    // It goes on asking to follow, and at the pace of its questions for views.
    expect(askedBefore).toBeGreaterThan(0);
    const lost = new Promise<unknown>((resolve) => seen.on("lost", ({ error }) => resolve(error)));
    mayView = false;
    expect(await lost).toMatchObject({
      code: "permission_denied",
      message: expect.stringContaining('group "vault": the request to each member failed: '),
    });
    const views = seen.views();
    await views.next();
    await expect(views.next()).rejects.toMatchObject({ code: "permission_denied" });
  });
});
