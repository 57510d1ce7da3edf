import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { Child } from "./support/child.ts";
import { freshName } from "./support/fabrics.ts";
import { endAllPeers } from "./support/peers.ts";

afterEach(endAllPeers);

async function run(...nodeOptions: string[]) {
  const path = join(tmpdir(), freshName());
  const child = new Child("forbidden", { path }, { nodeOptions });
  await child.report("told");
  expect(await child.ended).toBe(0);
  expect(child.unread("uncaught")).toEqual([]);
  return { refused: child.unread("refused"), done: child.unread("done") };
}

it("without addons, what needs the addon says which flag forbids it", async () => {
  const { refused, done } = await run("--no-addons");
  expect(done.map(({ how }) => how.split(" ")[0])).toEqual(["listen", "listen", "listen"]);
  const overTcp = refused.filter(({ how }) => how.includes("tcp://"));
  expect(overTcp).toHaveLength(2);
  for (const { message } of overTcp) {
    expect(message).toContain("Node forbids addons; start the process without --no-addons");
    expect(message).not.toContain("permission model");
  }
});

// Node 25 and later.
describe.runIf(process.allowedNodeEnvironmentFlags.has("--allow-net"))("under the permission model", () => {
  const most = ["--permission", "--allow-addons", "--allow-fs-read=*"];

  it("without --allow-net, sockets are refused with the flag, and nothing ends the process", async () => {
    const { refused, done } = await run(...most, "--allow-fs-write=*");
    // libfabric asks no permission of Node's.
    expect(done.map(({ how }) => how)).toEqual(["listen tcp://127.0.0.1:0"]);
    expect(refused).toHaveLength(7);
    for (const error of refused)
      expect(error).toMatchObject({
        code: "permission_denied",
        message: expect.stringContaining("start the process with --allow-net"),
      });
  });

  it("without --allow-fs-write, a path is refused with the flag", async () => {
    const { refused, done } = await run(...most, "--allow-net");
    expect(done).toHaveLength(3);
    expect(refused[0]).toMatchObject({
      how: expect.stringContaining("listen net+unix"),
      code: "permission_denied",
      message: expect.stringContaining("--allow-fs-write"),
    });
  });
});
