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

it("a peer that is away has only so many calls wait for it, and takes new ones for those that were given up", async () => {
  const host = new FakeHost();
  const peer = new Peer("mem://away", host, nobody, () => {}, resolveReconnectOptions(patiently), {
    maxWaiting: 0,
  });
  const calls = Array.from({ length: 1024 }, () => new FakeCall());
  const waits = calls.map((call) => Promise.resolve(peer.session(call)).catch(() => {}));
  const beyond = () => peer.session(new FakeCall());
  expect(beyond).toThrow("1024 calls wait for a session with mem://away, and no more may");
  for (const call of calls) call.phase = "settled";
  // Not looked at again at once.
  expect(beyond).toThrow(expect.objectContaining({ code: "resource_exhausted" }));
  host.clock.advance(100);
  waits.push(
    Promise.resolve(beyond()).then(
      () => {},
      () => {},
    ),
  );
  peer.close();
  await Promise.all(waits);
});

it("a group of peers that are all away has only so many calls wait for it", async () => {
  const host = new FakeHost();
  const newPeer = (url: string) => new Peer(url, host, nobody, () => {}, resolveReconnectOptions());
  const options = resolveGroupOptions({ reconnect: patiently, window: { maxWaiting: 0 } }, 1000);
  const group = new PeerGroup(host, staticResolver(["mem://a"]), options, newPeer, () => {});
  const waits = Array.from({ length: 1024 }, () =>
    Promise.resolve(group.session(new FakeCall())).catch(() => {}),
  );
  expect(() => group.session(new FakeCall())).toThrow("1024 calls wait for a session with");
  group.close();
  await Promise.all(waits);
});
