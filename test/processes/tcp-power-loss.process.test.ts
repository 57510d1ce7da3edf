import { spawnSync } from "node:child_process";
import { afterEach, expect, it } from "vitest";
import { Child, endAllChildren } from "./support/child.ts";

afterEach(endAllChildren);

/** A network of its own, in a user namespace. */
const ownNetwork = ["unshare", "-rn"] as const;
const mayOwn =
  spawnSync("unshare", ["-rn", "ip", "link", "add", "one", "type", "veth", "peer", "name", "two"]).status ===
    0 && spawnSync("nsenter", ["--version"]).status === 0;

// The server's side of the former connection stays, and a claim to the address of a living peer is refused.
it.runIf(mayOwn)(
  "a host that lost its power and started again is served: the kernel finds its former connection dead",
  { timeout: 180_000 },
  async () => {
    const network = new Child("power-loss", {}, { launcher: ownNetwork });
    await network.report("listening");
    await network.ask("start");
    await network.ask("losePower");
    await network.ask("start");
    expect(await network.ask("counters")).toMatchObject({ sessionsOpened: 2 });
  },
);
