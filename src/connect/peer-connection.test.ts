import { describe, expect, it } from "vitest";
import { RpcError } from "../base/errors/rpc-error.ts";
import { FakeCall, FakeServices } from "../session/connection/fake-services.test-support.ts";
import { Backend, type BackendListener } from "./backend.ts";
import { BackendSet } from "./backend-set.ts";
import { type BalanceOptions, resolveBalanceOptions } from "./connect-options.ts";
import { PeerConnection } from "./peer-connection.ts";
import { reconnectField } from "./reconnect.ts";

const nobody = () => Promise.reject(new RpcError({ code: "unavailable", message: "nobody there" }));
const turn = () => new Promise(setImmediate);
const patiently = { whileLost: "wait", minDelayMs: 60_000, maxDelayMs: 60_000 } as const;

function setAt(host: FakeServices, urls: string[], balance: BalanceOptions): BackendSet {
  const options = resolveBalanceOptions(balance, 1000);
  const connectionTo = (url: string) =>
    new PeerConnection(url, host, { open: nobody, reconnect: reconnectField.fallback });
  const backendAt = (url: string, set: BackendListener) => new Backend(connectionTo(url), options, set);
  const backends = new BackendSet(host, urls.join(", "), options, backendAt);
  backends.setUrls(urls);
  return backends;
}

describe("closed between two tries, leaves no timer and no call waiting:", () => {
  it("a connection", async () => {
    const host = new FakeServices();
    const connection = new PeerConnection("mem://away", host, {
      open: nobody,
      reconnect: reconnectField.resolve("connect", "reconnect", patiently),
    });
    const session = Promise.resolve(connection.session(new FakeCall()));
    const failed = expect(session).rejects.toMatchObject({ code: "unavailable" });
    await turn();
    expect(host.clock.timers).toBe(1);
    connection.close();
    expect(host.clock.timers).toBe(0);
    await failed;
  });

  it("a set of backends", async () => {
    const host = new FakeServices();
    const backends = setAt(host, ["mem://a", "mem://b"], { reconnect: patiently });
    const session = Promise.resolve(backends.session(new FakeCall(), undefined));
    const failed = expect(session).rejects.toMatchObject({ code: "unavailable" });
    await turn();
    // One for each peer's next try, and the call's own.
    expect(host.clock.timers).toBe(3);
    backends.close();
    expect(host.clock.timers).toBe(0);
    await failed;
  });
});

it("a connection to a peer that is away has only so many calls wait for it, and takes new ones for those that were given up", async () => {
  const host = new FakeServices();
  const connection = new PeerConnection("mem://away", host, {
    open: nobody,
    reconnect: reconnectField.resolve("connect", "reconnect", patiently),
    window: { maxWaiting: 0 },
  });
  const calls = Array.from({ length: 1024 }, () => new FakeCall());
  const waits = calls.map((call) => Promise.resolve(connection.session(call)).catch(() => {}));
  const beyond = () => connection.session(new FakeCall());
  expect(beyond).toThrow("1024 calls wait for a session with mem://away, the limit is reached");
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
  connection.close();
  await Promise.all(waits);
});

it("a set of backends that are all away has only so many calls wait for it", async () => {
  const host = new FakeServices();
  const backends = setAt(host, ["mem://a"], { reconnect: patiently, window: { maxWaiting: 0 } });
  const waits = Array.from({ length: 1024 }, () =>
    Promise.resolve(backends.session(new FakeCall(), undefined)).catch(() => {}),
  );
  expect(() => backends.session(new FakeCall(), undefined)).toThrow("1024 calls wait for a session with");
  backends.close();
  await Promise.all(waits);
});
