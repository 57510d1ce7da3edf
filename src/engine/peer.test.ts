import { describe, expect, it } from "vitest";
import { staticResolver } from "../balance/resolver.ts";
import { RpcError } from "../errors/rpc-error.ts";
import { FakeCall, FakeHost } from "../session/fake-host.test-support.ts";
import { resolveGroupOptions } from "./group-options.ts";
import { Peer } from "./peer.ts";
import { PeerGroup } from "./peer-group.ts";
import { resolveReconnectOptions } from "./reconnect.ts";

const nobody = () => Promise.reject(new RpcError({ code: "unavailable", message: "nobody there" }));
const turn = () => new Promise(setImmediate);
const patiently = { whileLost: "wait", minDelayMs: 60_000, maxDelayMs: 60_000 } as const;

describe("closed between two tries, leaves no timer and no call waiting:", () => {
  it("a peer", async () => {
    const host = new FakeHost();
    const peer = new Peer("mem://away", host, nobody, () => {}, resolveReconnectOptions(patiently));
    const session = Promise.resolve(peer.session(new FakeCall()));
    const failed = expect(session).rejects.toMatchObject({ code: "unavailable" });
    await turn();
    expect(host.clock.timers).toBe(1);
    peer.close();
    expect(host.clock.timers).toBe(0);
    await failed;
  });

  it("a group of peers", async () => {
    const host = new FakeHost();
    const newPeer = (url: string) => new Peer(url, host, nobody, () => {}, resolveReconnectOptions());
    const options = resolveGroupOptions({ reconnect: patiently }, 1000);
    const group = new PeerGroup(host, staticResolver(["mem://a", "mem://b"]), options, newPeer, () => {});
    const session = Promise.resolve(group.session(new FakeCall()));
    const failed = expect(session).rejects.toMatchObject({ code: "unavailable" });
    await turn();
    // One for each peer's next try, and the call's own.
    expect(host.clock.timers).toBe(3);
    group.close();
    expect(host.clock.timers).toBe(0);
    await failed;
  });
});
