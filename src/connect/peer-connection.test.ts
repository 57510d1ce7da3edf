import { describe, expect, it } from "vitest";
import { RpcError } from "../base/errors/rpc-error.ts";
import { defaultWindow } from "../base/flow/in-flight-window.ts";
import { Exchange } from "../session/calls/exchange.ts";
import { FakePort } from "../session/connection/fake-port.test-support.ts";
import { FakeCall, FakeServices, peerGreeting } from "../session/connection/fake-services.test-support.ts";
import { Session } from "../session/connection/session.ts";
import { Nonce } from "../wire/message.ts";
import { BackendSet } from "./backend-set.ts";
import { type BalanceOptions, reconnectField, resolveBalanceOptions } from "./connect-options.ts";
import { PeerConnection } from "./peer-connection.ts";

const nobody = () => Promise.reject(new RpcError({ code: "unavailable", message: "nobody there" }));
const turn = () => new Promise(setImmediate);
const patiently = { whileLost: "wait", baseDelayMs: 60_000, maxDelayMs: 60_000 } as const;

function setAt(
  host: FakeServices,
  urls: string[],
  balance: BalanceOptions,
  open: () => Promise<Session> = nobody,
): BackendSet {
  const options = resolveBalanceOptions(balance, 1000);
  const connectionTo = (url: string) =>
    new PeerConnection(url, host, { open, reconnect: reconnectField.fallback });
  const backends = new BackendSet(host, urls.join(", "), options, connectionTo);
  backends.setUrls(urls);
  return backends;
}

function openSession(host: FakeServices): Session {
  const session = new Session(
    host.terms([(context) => new Exchange(context)]),
    new FakePort(8),
    { address: 0, index: 1, nonce: Nonce.draw(), peerName: "mem://a" },
    defaultWindow,
  );
  session.begin({ ...peerGreeting, services: [["fake", ["call"]]] });
  return session;
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
  // Not checked again at once.
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

it("calls that wait for a set of backends share one pause between tries, and leave when a backend is connected", async () => {
  const host = new FakeServices();
  let tries = 0;
  let open: () => Promise<Session> = () => {
    tries++;
    return nobody();
  };
  const backends = setAt(host, ["mem://a"], { reconnect: patiently }, () => open());
  await turn();
  const sessions = Array.from({ length: 100 }, () => backends.session(new FakeCall(), undefined));
  await turn();
  // The background's try, and one for all calls.
  expect(tries).toBe(2);
  // The background's next try, and the pause of the calls.
  expect(host.clock.timers).toBe(2);
  open = async () => openSession(host);
  // Named anew, it is another backend, which is tried at once.
  backends.setUrls([]);
  backends.setUrls(["mem://a"]);
  const [first, ...others] = await Promise.all(sessions);
  expect(first?.state).toBe("open");
  expect(new Set(others)).toEqual(new Set([first]));
  expect(host.clock.timers).toBe(0);
  backends.close();
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
