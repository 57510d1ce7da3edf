import type { Engine } from "cinnabar";
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { Child } from "../../../test/processes/support/child.ts";
import { EtcdServer, etcd, freePort } from "../../../test/processes/support/etcd-server.ts";
import { type Fabric, freshName, freshUrl } from "../../../test/processes/support/fabrics.ts";
import { endAllPeers, openEngine, outcome, until } from "../../../test/processes/support/peers.ts";
import { Laned } from "../../lanes/test/programs/laned.ts";
import type { LanesServerSettings } from "../../lanes/test/programs/lanes-server.ts";
import {
  type Authority,
  coordinatorAuthority,
  etcdAuthority,
  type Group,
  type JoinOptions,
  joinGroup,
  notInView,
  observeGroup,
  staticAuthority,
} from "../src/index.ts";

afterEach(endAllPeers);

let server: EtcdServer | undefined;
beforeAll(async () => {
  if (etcd !== undefined) server = await EtcdServer.start();
});
afterAll(async () => server?.[Symbol.asyncDispose]());

/** Lanes always listen at the same addresses, as those of a process that restarts do. */
async function fixedPlace(fabric: Fabric): Promise<LanesServerSettings> {
  if (fabric === "shm") return { listen: freshUrl(fabric), lanes: 1 };
  return { listen: `tcp://127.0.0.1:${await freePort()}`, lanes: 1, firstLanePort: await freePort() };
}

/** A process with lanes, as the member that it serves for knows it. */
async function startLanes(settings: LanesServerSettings, engine: Engine) {
  const child = new Child("lanes-server", settings);
  const { urls } = await child.report("listening");
  const peer = await engine.connect(urls[0]);
  onTestFinished(() => peer.close());
  return { child, lanes: { urls: urls as string[], incarnation: peer.incarnation as bigint } };
}

async function join(authority: Authority, options: Partial<JoinOptions> = {}, url = freshUrl("shm")) {
  const engine = await openEngine({ listen: url, connectTimeoutMs: 10_000 });
  const group = await joinGroup("laned", { engine, authority, onExcluded: "ignore", ...options });
  onTestFinished(() => group.close());
  return { engine, group };
}

const callOf = (group: Group) =>
  group.at(1).laneClient(Laned, { lane: 0, timeoutMs: 30_000, retry: { attempts: 5 } });

describe.each([
  ["coordinator", "tcp"],
  ["etcd", "shm"],
] as const)("members with lanes under %s", (kind, fabric) => {
  it.skipIf(kind === "etcd" && etcd === undefined)(
    `are called at their lanes, and restarted lanes are not, over ${fabric}`,
    async () => {
      const seed = freshUrl("shm");
      const authority =
        kind === "coordinator"
          ? coordinatorAuthority({ seeds: [seed], refreshMs: 100 })
          : etcdAuthority({
              endpoints: (server as EtcdServer).url,
              prefix: `/${freshName()}`,
              leaseMs: 600_000,
            });
      const settings = await fixedPlace(fabric);
      const { group, engine } = await join(authority, {}, seed);
      const former = await startLanes(settings, engine);
      const holder = await join(authority, { lanes: former.lanes });
      const view = await group.when(({ members }) => members.length === 2);
      expect(view.members[1]?.lanes).toEqual({
        engine: former.lanes.incarnation.toString(16).padStart(16, "0"),
        urls: former.lanes.urls,
      });
      const link = group.at(1);
      const api = callOf(group);
      expect((await api.where({})).lane).toBe(0);

      // A lane that is replaced is another thread of the same member.
      const { thread } = await api.where({});
      expect(await outcome(link.laneClient(Laned).die({ how: "exit" }))).toBe("unavailable");
      await until(async () => {
        const result = await api.where.result({});
        return result.ok && result.value.thread !== thread;
      });

      // Another process takes the addresses of the lanes before anybody knows that the former one has ended.
      await former.child.destroy();
      const successor = await startLanes(settings, engine);
      expect(successor.lanes.urls).toEqual(former.lanes.urls);
      for (let attempt = 0; attempt < 3; attempt++)
        expect(["unavailable", "failed_precondition"]).toContain(
          await outcome(link.laneClient(Laned, { lane: 0, timeoutMs: 5000 }).where({})),
        );
      expect(await successor.child.ask("stats")).toMatchObject({ dispatcher: 0, lanes: [0] });

      // It replaces the former one.
      await holder.group.leave();
      await group.when(({ members }) => members.length === 1);
      const result = await api.where.result({});
      expect(!result.ok && notInView(result.error)?.rank).toBe(1);
      await join(authority, { lanes: successor.lanes, rank: 1 });
      await group.when(({ members }) => members.length === 2);
      expect((await callOf(group).where({})).lane).toBe(0);
    },
  );
});

it("a list of members may have the URLs of lanes", async () => {
  const engine = await openEngine();
  const { lanes } = await startLanes({ listen: freshUrl("shm"), lanes: 2 }, engine);
  const authority = staticAuthority([
    { urls: ["shm://nobody"], lanes: lanes.urls },
    { urls: ["shm://none"] },
  ]);
  const group = await observeGroup("laned", { engine, authority });
  onTestFinished(() => group.close());
  expect((await group.at(0).laneClient(Laned, { lane: 1 }).where({})).lane).toBe(1);
  expect(() => group.at(1).laneClient(Laned)).toThrow("rank 1 has no lanes");
});

it.each([
  ["coordinator", coordinatorAuthority({ seeds: ["shm://none"] })],
  ["etcd", etcdAuthority({ endpoints: "http://127.0.0.1:1" })],
])("joining under %s refuses the URLs of lanes as those of the engine", async (_, authority) => {
  const engine = await openEngine();
  const { lanes } = await startLanes({ listen: freshUrl("shm"), lanes: 1 }, engine);
  await expect(join(authority, { urls: lanes.urls })).rejects.toThrow(
    `joinGroup: urls has ${lanes.urls[0]}, where another engine answers`,
  );
});

it("joining refuses lanes that others cannot reach, or that stand for the engine", async () => {
  const authority = coordinatorAuthority({ seeds: ["shm://none"] });
  const incarnation = 1n;
  const refused = (options: object) => expect(join(authority, options)).rejects;
  const urls = ["tcp://10.0.0.1:7400"];
  await refused({ lanes: { incarnation, urls: ["tcp://0.0.0.0:7400"] } }).toThrow("pass lanes as");
  await refused({ lanes: { urls } }).toThrow("lanes must be what openLanes gives");
  await refused({ urls, lanes: { incarnation, urls } }).toThrow("those of lanes as lanes");
});
