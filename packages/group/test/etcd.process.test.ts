import { Engine } from "cinnabar/standard";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { Cable, EtcdServer, etcd, freePort } from "../../../test/processes/support/etcd-server.ts";
import { type EtcdOptions, etcdAuthority } from "../src/etcd/etcd-authority.ts";
import {
  createGroup,
  type Group,
  type JoinOptions,
  joinGroup,
  observeGroup,
  type View,
} from "../src/index.ts";

/** What the tests wait for takes seconds at most, and much longer where the machine is busy. */
const patience = { timeout: 60_000 };
const open: AsyncDisposable[] = [];
let server: EtcdServer;
let names = 0;

const own = <T extends AsyncDisposable>(it: T): T => {
  open.push(it);
  return it;
};

async function start(group: string, etcd: Partial<EtcdOptions> = {}, options: Partial<JoinOptions> = {}) {
  const engine = own(await Engine.open({ listen: `mem://etcd-${process.pid}-${++names}` }));
  const authority = etcdAuthority({ endpoints: server.url, leaseMs: 600_000, ...etcd });
  return own(await joinGroup(group, { engine, authority, onExcluded: "ignore", ...options }));
}

const ranksOf = ({ members }: View) => members.map(({ rank }) => rank);
const fresh = (name: string) => `${name}-${++names}`;

/** Every view that etcd ever had of a group. */
async function history(group: string): Promise<View[]> {
  const key = Buffer.from(`/cinnabar/groups/${group}/view`).toString("base64");
  const views: View[] = [];
  let revision: string | undefined;
  for (;;) {
    const { kvs } = (await server.post("/v3/kv/range", {
      key,
      ...(revision !== undefined && { revision }),
    })) as {
      kvs?: { value: string; mod_revision: string }[];
    };
    const [kv] = kvs ?? [];
    if (kv === undefined) return views.reverse();
    views.push(JSON.parse(Buffer.from(kv.value, "base64").toString()));
    revision = String(BigInt(kv.mod_revision) - 1n);
  }
}

async function leaseOf(group: string, rank: number): Promise<string | undefined> {
  const key = Buffer.from(`/cinnabar/groups/${group}/alive/${rank}`).toString("base64");
  const { kvs } = (await server.post("/v3/kv/range", { key })) as { kvs?: { lease: string }[] };
  return kvs?.[0]?.lease;
}

const expectOneLine = async (group: string) => {
  const versions = (await history(group)).map(({ version }) => version);
  expect(versions).toEqual(versions.map((_, index) => index + 1));
};

// Reading an older revision than 1 is refused, so something stands before all groups.
beforeAll(async () => {
  if (etcd === undefined) return;
  server = await EtcdServer.start();
  await server.post("/v3/kv/put", { key: "YQ==", value: "YQ==" });
});

afterEach(async () => {
  server?.resume();
  for (const each of open.splice(0).reverse()) await each[Symbol.asyncDispose]();
});

afterAll(async () => server?.[Symbol.asyncDispose]());

describe.skipIf(etcd === undefined)("a group in etcd", () => {
  it("gives each member a rank, and all the same views in one line", async () => {
    const name = fresh("line");
    const groups = await Promise.all([1, 2, 3, 4, 5].map(() => start(name, {}, { metadata: { zone: "a" } })));
    const whole = await Promise.all(groups.map((group) => group.when(({ members }) => members.length === 5)));
    expect(new Set(groups.map(({ self }) => self?.rank))).toEqual(new Set([0, 1, 2, 3, 4]));
    for (const view of whole) expect(view).toEqual(whole[0]);
    expect(whole[0]?.members[0]).toMatchObject({ metadata: { zone: "a" }, engine: expect.any(String) });

    const observer = own(
      await observeGroup(name, {
        engine: own(await Engine.open()),
        authority: etcdAuthority({ endpoints: server.url }),
      }),
    );
    const [first] = groups as [Group];
    await first.leave();
    const left = await observer.when(({ members }) => members.length === 4, AbortSignal.timeout(60_000));
    expect(ranksOf(left)).not.toContain(first.self?.rank);
    // A rank is not given to another member.
    const late = await start(name);
    expect(late.self?.rank).toBe(5);
    await expectOneLine(name);
  });

  it("is made by `createGroup` once, and has no view before", async () => {
    const name = fresh("made");
    const open = async () => own(await Engine.open({ listen: `mem://etcd-${process.pid}-${++names}` }));
    const options = { engine: await open() };
    const authority = etcdAuthority({ endpoints: server.url });
    await expect(observeGroup(name, { ...options, authority })).rejects.toMatchObject({ code: "not_found" });
    own(await createGroup(name, { ...options, authority }));
    const another = { engine: await open(), authority };
    await expect(createGroup(name, another)).rejects.toMatchObject({ code: "already_exists" });
    // The engine that could not make the group may still join it.
    own(await joinGroup(name, another));
  });

  it("refuses a second process that claims a rank, and takes the successor at the same address", async () => {
    const name = fresh("claim");
    // At an address that others reach, and this process does not: no engine answers at it here.
    const urls = [`mem://${fresh("moved")}`];
    const group = await start(name, {}, { rank: 7, urls });
    await expect(start(name, {}, { rank: 7 })).rejects.toMatchObject({
      code: "failed_precondition",
      message: expect.stringContaining("rank 7 belongs to mem://"),
    });
    const successor = await start(name, {}, { rank: 7, urls });
    expect(successor.self?.incarnation).toBeGreaterThan(group.self?.incarnation ?? 0);
    await expect.poll(() => group.isExcluded, patience).toBe(true);
    await expectOneLine(name);
  });

  it("removes a member whose lease has ended", async () => {
    const name = fresh("lease");
    const [one, other] = [await start(name), await start(name, { leaseMs: 2000 })];
    await one.when(({ members }) => members.length === 2);
    await other.close();
    expect(ranksOf(await one.when(({ members }) => members.length === 1))).toEqual([0]);
  });

  it("removes several members whose leases end one right after the other", async () => {
    const name = fresh("several");
    const groups = [await start(name), await start(name), await start(name), await start(name)];
    const [one] = groups as [Group];
    await one.when(({ members }) => members.length === 4);
    const leases = await Promise.all([1, 2, 3].map((rank) => leaseOf(name, rank)));
    await Promise.all(leases.map((ID) => server.post("/v3/lease/revoke", { ID })));
    // Well before all is read anew, after 30 s.
    await one.when(({ members }) => members.length === 1, AbortSignal.timeout(20_000));
    await expectOneLine(name);
  });

  it("keeps a member whose lease was revoked before anybody else noticed", async () => {
    const name = fresh("revoked");
    const group = await start(name, { leaseMs: 2000 });
    const lease = () => leaseOf(name, 0);
    const former = await lease();
    await server.post("/v3/lease/revoke", { ID: former });
    expect(await lease()).toBeUndefined();
    await expect.poll(lease, patience).toEqual(expect.stringMatching(/^\d+$/));
    expect(await lease()).not.toBe(former);
    expect([group.isExcluded, group.view.version]).toEqual([false, 1]);
  });

  it("goes on after its server was killed and started again, and when every connection breaks", async () => {
    const name = fresh("restart");
    const cable = own(await Cable.to(server.url));
    const [one, other] = [await start(name, { endpoints: cable.url }), await start(name)];
    await server.kill();
    await server.run();
    const third = await start(name);
    await Promise.all([one, other].map((group) => group.when(({ members }) => members.length === 3)));
    cable.reset();
    await third.leave();
    expect(ranksOf(await one.when(({ members }) => members.length === 2))).toEqual([0, 1]);
    await expectOneLine(name);
  });

  it("goes on where the history that it missed is compacted", async () => {
    const name = fresh("compacted");
    const cable = own(await Cable.to(server.url));
    const [one, other] = [
      await start(name, { endpoints: cable.url, requestTimeoutMs: 500 }),
      await start(name),
    ];
    cable.isCut = true;
    const third = await start(name);
    await third.leave();
    const { header } = (await server.post("/v3/kv/range", { key: "YQ==" })) as {
      header: { revision: string };
    };
    await server.post("/v3/kv/compaction", { revision: header.revision });
    cable.reset();
    cable.isCut = false;
    const { version } = other.view;
    await one.when((view) => view.version >= version);
    expect(one.view).toEqual(other.view);
  });

  it("bears a server that stands still for less than a lease", async () => {
    const name = fresh("slow");
    const [one, other] = [
      await start(name, { requestTimeoutMs: 200 }),
      await start(name, { requestTimeoutMs: 200 }),
    ];
    await one.when(({ members }) => members.length === 2);
    await server.stop();
    await expect(other.leave()).rejects.toMatchObject({ code: "unavailable" });
    server.resume();
    await start(name);
    // Whether the request to leave was carried out is open: etcd may have read it later.
    const view = await one.when(({ members }) => members.some(({ rank }) => rank === 2));
    expect(ranksOf(view)).toContain(0);
    await expectOneLine(name);
  });

  it("a member that is cut off publishes nothing, and ends where it was told to", async () => {
    const name = fresh("minority");
    const [near, far] = [own(await Cable.to(server.url)), own(await Cable.to(server.url))];
    // Long enough for a busy machine, which may not renew a lease in time; the test lasts as long.
    const ways = { requestTimeoutMs: 300, leaseMs: 4000 };
    const [one, waiting, ending] = [
      await start(name),
      await start(name, { endpoints: near.url, ...ways }),
      await start(name, { endpoints: far.url, whenUnreachable: "end", ...ways }),
    ];
    await Promise.all([one, waiting].map((group) => group.when(({ members }) => members.length === 3)));
    const lost = new Promise((resolve) => ending.on("lost", ({ error }) => resolve(error)));
    for (const cable of [near, far]) cable.isCut = true;
    expect(await lost).toMatchObject({
      code: "unavailable",
      message: expect.stringContaining("others may have removed this member"),
    });
    expect(ranksOf(await one.when(({ members }) => members.length === 1))).toEqual([0]);
    expect([waiting.isExcluded, waiting.view.members.length]).toEqual([false, 3]);
    // What was sent meanwhile is lost, so the connections must end before another one is tried.
    near.isCut = false;
    near.reset();
    await expect.poll(() => waiting.isExcluded, patience).toBe(true);
    await expectOneLine(name);
  });

  it("a death that the failure detector reports removes a member before its lease ends", async () => {
    const name = fresh("reported");
    const authority = etcdAuthority({ endpoints: server.url, leaseMs: 600_000 });
    const engine = own(await Engine.open());
    const candidate = (url: string) => ({
      ...{ creates: false, engine: "0", urls: [url], host: undefined, detector: undefined, metadata: {} },
    });
    const one = await authority.join(name, candidate("mem://a"), { engine });
    const other = await authority.join(name, candidate("mem://b"), { engine });
    try {
      one.refresh?.(2);
      await expect.poll(() => one.view.members.length, patience).toBe(2);
      one.report(other.self, "dead");
      await expect.poll(() => one.view.members.map(({ rank }) => rank), patience).toEqual([0]);
      await expect.poll(() => other.view.version, patience).toBe(3);
    } finally {
      await Promise.all([one.close(), other.close()]);
    }
  });

  it("a reported death removes nobody before its lease ends where members end with theirs", async () => {
    const name = fresh("bounded");
    const engine = own(await Engine.open());
    const candidate = (url: string) => ({
      ...{ creates: false, engine: "0", urls: [url], host: undefined, detector: undefined, metadata: {} },
    });
    const ways = { endpoints: server.url, leaseMs: 600_000, whenUnreachable: "end" } as const;
    const join = (url: string, more: Partial<EtcdOptions> = {}) =>
      etcdAuthority({ ...ways, ...more }).join(name, candidate(url), { engine });
    const [one, other, eager] = [
      await join("mem://a"),
      await join("mem://b"),
      await join("mem://c", { evictReported: true }),
    ];
    try {
      one.refresh?.(3);
      await expect.poll(() => one.view.members.length, patience).toBe(3);
      // Both are reported by the member that would remove them first.
      for (const member of [other.self, eager.self]) one.report(member, "dead");
      const lease = (await leaseOf(name, other.self.rank)) as string;
      await server.post("/v3/lease/revoke", { ID: lease });
      await expect.poll(() => one.view.members.map(({ rank }) => rank), patience).toEqual([0, 2]);
      // The options may be chosen one by one.
      eager.report(one.self, "dead");
      await expect.poll(() => eager.view.members.map(({ rank }) => rank), patience).toEqual([2]);
      await expectOneLine(name);
      const ranks = (await history(name)).map(({ members }) => members.map(({ rank }) => rank));
      expect(ranks).toEqual([[0], [0, 1], [0, 1, 2], [0, 2], [2]]);
    } finally {
      await Promise.all([one.close(), other.close(), eager.close()]);
    }
  });

  it("pauses before it reads anew where a proxy ends every watch at once", async () => {
    const name = fresh("ended");
    let watches = 0;
    const endsWatches: typeof fetch = async (url, init) => {
      if (!String(url).endsWith("/v3/watch")) return fetch(url, init);
      watches += 1;
      return new Response("");
    };
    const engine = own(await Engine.open());
    const group = await start(name);
    const authority = etcdAuthority({ endpoints: server.url, fetch: endsWatches });
    const observer = own(await observeGroup(name, { engine, authority }));
    await start(name);
    await observer.when(({ members }) => members.length === 2);
    // Each pause is twice as long as the one before: a thousand would take longer than the test may.
    expect(watches).toBeLessThan(1000);
    expect(group.view.version).toBe(2);
  });

  it("asks the next server where one does not answer, and says which one did not", async () => {
    const name = fresh("servers");
    const nowhere = `http://127.0.0.1:${await freePort()}`;
    const group = await start(name, { endpoints: [nowhere, server.url] });
    expect(group.view.version).toBe(1);
    await expect(start(name, { endpoints: nowhere, connectTimeoutMs: 1000 })).rejects.toMatchObject({
      code: "unavailable",
      message: expect.stringMatching(/etcd at \S+ has not answered \/v3\/lease\/grant: .*ECONNREFUSED/),
    });
  });

  it("says of a key that holds no view which one it is", async () => {
    const name = fresh("strange");
    const key = Buffer.from(`/cinnabar/groups/${name}/view`).toString("base64");
    await server.post("/v3/kv/put", { key, value: Buffer.from("{}").toString("base64") });
    await expect(start(name)).rejects.toThrow(`the key /cinnabar/groups/${name}/view of etcd holds no view`);
  });
});

describe.skipIf(etcd === undefined)("etcd with authentication", () => {
  it("takes a user with a password, and refuses others by name", async () => {
    const secured = own(await EtcdServer.start());
    await secured.post("/v3/auth/user/add", { name: "root", password: "secret" });
    await secured.post("/v3/auth/role/add", { name: "root" });
    await secured.post("/v3/auth/user/grant", { user: "root", role: "root" });
    const guest = { name: "guest", password: "of no role" };
    await secured.post("/v3/auth/user/add", guest);
    await secured.post("/v3/auth/enable", {});
    const user = { name: "root", password: "secret" };
    const name = fresh("secured");
    const group = await start(name, { endpoints: secured.url, user });
    // The tokens of the former process mean nothing to the next one.
    await secured.kill();
    await secured.run();
    await start(name, { endpoints: secured.url, user });
    await group.when(({ members }) => members.length === 2);
    const wrong = { ...user, password: "wrong" };
    await expect(start(name, { endpoints: secured.url, user: wrong })).rejects.toMatchObject({
      code: "unauthenticated",
      message: expect.stringContaining("authentication failed"),
    });
    await expect(start(name, { endpoints: secured.url })).rejects.toMatchObject({
      code: "unauthenticated",
      message: expect.stringContaining("etcd refuses the request"),
    });
    await expect(start(name, { endpoints: secured.url, user: guest })).rejects.toMatchObject({
      code: "permission_denied",
      message: expect.stringContaining("permission denied"),
    });
  });
});

describe("the options of etcdAuthority", () => {
  const endpoints = "http://127.0.0.1:2379";
  it.each([
    [{ endpoints: [] }, "endpoints must be an array of at least 1 item, it has 0"],
    [{ endpoints: "10.0.0.1:2379" }, 'endpoints must be a URL with http or https, it is "10.0.0.1:2379"'],
    [{ endpoints, prefix: "groups/" }, "prefix must be a path that begins with a slash"],
    [{ endpoints, leaseMs: 10 }, "leaseMs must be a number from 2000 to 3600000, it is 10"],
    [{ endpoints, requestTimeoutMs: 0 }, "requestTimeoutMs must be a number from 1"],
    [{ endpoints, whenUnreachable: "stop" }, 'whenUnreachable must be "wait" or "end"'],
    [{ endpoints, lease: 10 }, 'unknown option "lease"'],
  ])("refuse %j", (options, message) => {
    expect(() => etcdAuthority(options as EtcdOptions)).toThrow(message);
  });
});
