import { spawnSync } from "node:child_process";
import { Engine, type Identity } from "cinnabar";
import { afterEach, describe, expect, it } from "vitest";
import { Child, type ChildOptions } from "./support/child.ts";
import { freshUrl } from "./support/fabrics.ts";
import { endAllPeers } from "./support/peers.ts";

interface Asked {
  readonly identity: Identity | undefined;
  readonly known: { readonly identity: Identity | undefined; readonly confidential: boolean };
}

/** A user namespace that maps no user. */
const unmapped = { launcher: ["unshare", "-U"] } as const;
const mayUnshare = spawnSync("unshare", ["-U", "true"]).status === 0;

afterEach(endAllPeers);

async function listening(url: string, options?: ChildOptions) {
  const child = new Child("identity-server", { listen: url }, options);
  const { urls } = await child.report("listening");
  return { child, url: urls[0] as string };
}

describe("the identity of a peer", () => {
  it("over shm is its user, group and process, by the kernel, at both sides", async () => {
    const one = await listening(freshUrl("shm"));
    const other = await listening(freshUrl("shm"));
    const { identity, known } = await other.child.ask<Asked>("ask", one.url);
    const [uid, gid] = [process.getuid?.(), process.getgid?.()];
    expect(identity).toEqual({ kind: "process", uid, gid, pid: one.child.pid });
    expect(known).toEqual({
      identity: { kind: "process", uid, gid, pid: other.child.pid },
      confidential: true,
    });
  });

  it("over tcp is unknown without security, and the session is not confidential", async () => {
    const one = await listening(freshUrl("tcp"));
    const other = await listening(freshUrl("tcp"));
    const { identity, known } = await other.child.ask<Asked>("ask", one.url);
    expect(identity).toBeUndefined();
    expect(known).toEqual({ identity: undefined, confidential: false });
  });

  it("over mem is the process itself", async () => {
    await using _server = await Engine.open({ listen: "mem://identity" });
    await using engine = await Engine.open();
    const peer = await engine.connect("mem://identity");
    expect(peer.identity).toEqual({ kind: "local" });
    expect(peer.isConfidential).toBe(true);
  });

  it.skipIf(!mayUnshare)("is not taken from a namespace in which all users look the same", async () => {
    const one = await listening(freshUrl("shm"), unmapped);
    const other = await listening(freshUrl("shm"), unmapped);
    await expect(other.child.ask("ask", one.url)).rejects.toThrow("[unavailable] nobody listens");
    // Itself it knows by its process.
    const own = await one.child.ask<Asked>("ask", one.url);
    expect(own.identity).toMatchObject({ kind: "process", pid: one.child.pid });
  });
});
