import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { Child } from "./support/child.ts";
import { freshName, freshUrl } from "./support/fabrics.ts";
import { endAllPeers, openEngine, startServer } from "./support/peers.ts";

afterEach(endAllPeers);

const bytes = 3 << 20;
const all = { echoed: true, uploaded: bytes, downloaded: bytes, put: bytes, filled: true };

type Launcher = [string, ...string[]];
/** A shell that may mount; the user has another number inside. */
const afterMount = (prepare: string): Launcher => [
  ...(["unshare", "-Urm", "sh", "-c"] as const),
  `${prepare} && exec "$@"`,
  "sh",
];
const isPossible = ([program, ...args]: Launcher) => spawnSync(program, [...args, "true"]).status === 0;

const full = afterMount("mount -t tmpfs -o size=4k,nr_inodes=1 tmpfs /dev/shm");
const readOnly = afterMount("mount -t tmpfs -o ro tmpfs /dev/shm");
const ownProcesses: Launcher = ["unshare", "--user", "--map-current-user", "--pid", "--fork", "--kill-child"];

const ownNetwork: Launcher = ["unshare", "--user", "--map-current-user", "--net"];

describe("shm at a path", () => {
  const path = join(tmpdir(), `${freshName()}.sock`);
  afterEach(() => Promise.all([rm(path, { force: true }), rm(`${path}.lock`, { force: true })]));

  it.skipIf(!isPossible(ownNetwork))("joins processes in network namespaces of their own", async () => {
    const url = `shm://${path}`;
    const server = new Child("shm-places", { listen: url }, { launcher: ownNetwork });
    await server.report("listening");
    const client = new Child("shm-places", { url }, { launcher: ownNetwork });
    expect(await client.report("moved")).toMatchObject(all);
  });

  it("is taken over from a server that was killed, and from no other", async () => {
    const url = `shm://${path}`;
    const { server } = await startServer({ listen: url });
    await expect(openEngine({ listen: url })).rejects.toThrow("already in use by a live process");
    await server.destroy();
    const engine = await openEngine({ listen: url });
    expect(engine.urls).toEqual([url]);
    await engine.close();
    expect(existsSync(path)).toBe(false);
    await expect(engine.connect(url)).rejects.toThrow();
  });
});

describe.each<[string, Launcher, Launcher | undefined]>([
  ["where /dev/shm is full", full, full],
  ["where /dev/shm is read-only", readOnly, readOnly],
  // The kernel lets the server copy from and to the client, and not the other way round.
  ["with a client in a process namespace of its own", ownProcesses, undefined],
])("shm %s", (_, clients, servers) => {
  it.skipIf(!isPossible(clients))("moves messages and memory", async () => {
    const url = freshUrl("shm");
    const server = new Child("shm-places", { listen: url }, { ...(servers && { launcher: servers }) });
    await server.report("listening");
    const client = new Child("shm-places", { url }, { launcher: clients });
    expect(await client.report("moved")).toMatchObject(all);
  });
});
