import { afterEach, describe, expect, it } from "vitest";
import { Child } from "./support/child.ts";
import { endAllPeers } from "./support/peers.ts";

afterEach(endAllPeers);

const overTcp = ["listen over tcp", "connect over tcp"];
const overShm = ["listen over shm", "connect over shm"];

describe.each([
  [
    "libfabric",
    { CINNABAR_LIBFABRIC: "/nonexistent/libfabric.so.1" },
    ["libfabric was not found", "apt-get install libfabric1", "net://, shm:// and mem:// work without it"],
    { opened: overShm, refused: overTcp, shm: { available: true, reason: "" } },
  ],
  [
    "the addon",
    { CINNABAR_ADDON: "/nonexistent/cinnabar.node" },
    ["native addon was not found", "npm run setup", "net:// and mem:// work without it"],
    { opened: [], refused: [...overTcp, ...overShm], shm: { available: false, reason: "needs the addon" } },
  ],
] as const)("without %s", (what, env, sentences, expected) => {
  it("imports, serves over what needs none, and says at first use what was tried and what to install", async () => {
    const child = new Child("missing", {}, { env });
    await child.report("imported");
    expect(await child.report("mem")).toMatchObject({ token: "t" });
    expect(await child.report("net")).toMatchObject({ token: "n" });
    expect(await child.report("sealed")).toMatchObject({ token: "x", isConfidential: true });
    expect(await child.report("mem again")).toMatchObject({ token: "u" });
    const report = await child.report("providers");
    expect(await child.ended).toBe(0);
    expect(child.stderr).toBe("");

    const path = Object.values(env)[0] as string;
    const refused = child.unread("refused");
    expect(refused.map(({ how }) => how)).toEqual(expected.refused);
    expect(child.unread("opened").map(({ how }) => how)).toEqual(expected.opened);
    for (const error of refused) {
      expect(error).toMatchObject({
        name: "RpcError",
        code: "unavailable",
        origin: "local",
        retryable: false,
      });
      for (const sentence of [path, ...sentences]) expect(error.message).toContain(sentence);
    }
    // One and the same error, however it was come by.
    expect(new Set(refused.map(({ message }) => message)).size).toBe(1);

    expect(report.providers).toEqual([
      { scheme: "mem", provider: "mem", available: true, reason: "" },
      { scheme: "net", provider: "node:net", available: true, reason: "" },
      { scheme: "net+unix", provider: "node:net", available: true, reason: "" },
      { scheme: "shm", provider: "shm", ...expected.shm },
    ]);
    expect(report.libfabric.loaded).toBe(false);
    const tried = what === "libfabric" ? report.libfabric.tried : report.addon;
    expect(tried).toEqual([
      { path, origin: Object.keys(env)[0], reason: expect.stringMatching(/no such file/i) },
    ]);
  });
});
