import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { openEngine } from "../matrix/pair.ts";
import { verbsDevices } from "../matrix/verbs.ts";

const cli = fileURLToPath(new URL("../../dist/cli/bin/cinnabar.js", import.meta.url));

it("without a verbs port nothing is said of locked memory", async () => {
  expect((await openEngine({ listen: "tcp://127.0.0.1:0" })).stats().lockedMemory).toBeUndefined();
});

it.skipIf(verbsDevices.length === 0).each(verbsDevices)(
  "verbs on $name: stats tell what is pinned, and the limit",
  async ({ host }) => {
    const engine = await openEngine({ listen: `verbs://${host}:0` });
    const before = engine.stats().lockedMemory?.pinnedBytes ?? 0;
    // rxm's own buffers and our slots.
    expect(before).toBeGreaterThan(5 * 1024 * 1024);
    expect(engine.stats().lockedMemory).toMatchObject({ limitBytes: null, leftBytes: null });
  },
);

it.skipIf(verbsDevices.length === 0)(
  "verbs on a process that may lock too little: info says so, and what to do",
  () => {
    // Root is not bound by the limit while it has the capability.
    const bare = ["--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock", "prlimit", "--memlock=1048576:1048576"];
    const ended = spawnSync(
      "setpriv",
      [...bare, process.execPath, cli, "info", "--all", "--require", "verbs"],
      {
        encoding: "utf8",
        env: { ...process.env, NODE_OPTIONS: "" },
      },
    );
    expect(ended.stderr).toContain("this machine cannot use verbs");
    expect(ended.status).toBe(1);
    expect(ended.stdout).toMatch(/verbs:.*no +verbs needs 40 MiB of locked memory.*ulimit -l unlimited/);
    expect(ended.stdout).toContain("Locked memory: limit 1024 KiB");
  },
);

it.skipIf(!existsSync("/sys/class/infiniband/rxe0/parent"))(
  "verbs with paging on demand is refused where there is Soft-RoCE: info says so",
  () => {
    const ended = spawnSync(process.execPath, [cli, "info", "--all", "--require", "verbs"], {
      encoding: "utf8",
      env: { ...process.env, NODE_OPTIONS: "", FI_VERBS_USE_ODP: "1" },
    });
    expect(ended.status).toBe(1);
    expect(ended.stdout).toContain(
      "on-demand paging of Soft-RoCE (rxe0) puts data in wrong places: unset it",
    );
  },
);
