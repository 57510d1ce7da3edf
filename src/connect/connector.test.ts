import { expect, it, vi } from "vitest";
import type { RpcCode } from "../base/errors/code.ts";
import { RpcError } from "../base/errors/rpc-error.ts";
import { defaultWindow } from "../base/flow/in-flight-window.ts";
import { identityOfPsk } from "../security/identity.ts";
import { resolveSecurity } from "../security/security-options.ts";
import { Exchange } from "../session/calls/exchange.ts";
import { FakePort } from "../session/connection/fake-port.test-support.ts";
import { FakeServices, peerGreeting } from "../session/connection/fake-services.test-support.ts";
import { Session } from "../session/connection/session.ts";
import type { ConnectRequest, SessionTable } from "../session/connection/session-table.ts";
import { ConnectSilence, MessagesLost, sendFailure } from "../session/opening/end-reasons.ts";
import { Nonce } from "../wire/message.ts";
import { Connector } from "./connector.ts";
import type { Ports } from "./ports.ts";
import type { Resolver } from "./resolver.ts";

const url = "tcp://127.0.0.1:7400";
const nothing = new Uint8Array(0);

it("no further hello is said for a peer that has been closed", async () => {
  const connect = vi.fn(async () => {
    links.close();
    throw new ConnectSilence(url, 1000);
  });
  const port = { route: () => ({ address: nothing, replyTo: nothing }), admit: () => 0 };
  const ports = { locate: async () => [{}], towards: async () => port };
  const links: Connector = new Connector(
    new FakeServices(),
    { connect } as unknown as SessionTable,
    ports as unknown as Ports,
    () => new FakeServices().served,
    60_000,
    () => {},
  );
  await expect(links.peer(url, {})).rejects.toThrow(`${url} has been closed`);
  await new Promise(setImmediate);
  expect(connect).toHaveBeenCalledOnce();
});

it("another hello is said when the welcome was lost with its connection", async () => {
  const opened = new Error("opened");
  const connect = vi
    .fn()
    .mockRejectedValueOnce(new MessagesLost(url, 1))
    .mockRejectedValueOnce(
      sendFailure({ peerName: url, port: { provider: "tcp" }, transferRefused: false }, 125),
    )
    .mockRejectedValueOnce(opened);
  const port = { route: () => ({ address: nothing, replyTo: nothing }), admit: () => 0 };
  const ports = { locate: async () => [{}], towards: async () => port };
  const links = new Connector(
    new FakeServices(),
    { connect } as unknown as SessionTable,
    ports as unknown as Ports,
    () => new FakeServices().served,
    60_000,
    () => {},
  );
  await expect(links.peer(url, {})).rejects.toBe(opened);
  expect(connect).toHaveBeenCalledTimes(3);
});

it("an engine that the resolver does not admit gets no calls, and one with another identity is counted", async () => {
  const services = new FakeServices();
  services.security = resolveSecurity("test", "security", {
    psk: { identity: "front", key: new Uint8Array(32) },
  });
  const at = (number: number) => `tcp://127.0.0.1:${7400 + number}`;
  const opened: Session[] = [];
  const connect = async ({ peerName }: ConnectRequest) => {
    const session = new Session(
      services.terms([(context) => new Exchange(context)]),
      new FakePort(8),
      { address: 0, index: opened.length + 1, nonce: Nonce.draw(), peerName },
      defaultWindow,
    );
    session.identity = identityOfPsk(peerName === at(2) ? "thief" : "front");
    session.begin({ ...peerGreeting, incarnation: BigInt(peerName.slice(-1)) });
    opened.push(session);
    return session;
  };
  const port = { route: () => ({ address: nothing, replyTo: nothing }), admit: () => 0 };
  const ports = { locate: async () => [{}], towards: async () => port };
  const connector = new Connector(
    services,
    { connect } as never,
    ports as unknown as Ports,
    () => new FakeServices().served,
    60_000,
    () => {},
  );
  const refuse = (code: RpcCode, message: string) => {
    throw new RpcError({ code, message });
  };
  const resolver: Resolver = {
    name: "scripted",
    start(listener) {
      listener.onUrls([at(1), at(2), at(3)]);
      return () => {};
    },
    admit({ incarnation, identity }) {
      if (identity?.kind === "psk" && identity.name !== "front") refuse("permission_denied", "somebody else");
      if (incarnation === 3n) refuse("unavailable", "another engine");
    },
  };
  const balanced = await connector.balanced(resolver, {});
  await vi.waitFor(() => expect(opened).toHaveLength(3));
  await new Promise(setImmediate);
  expect(balanced.backends).toMatchObject([
    { url: at(1), state: "connected" },
    { url: at(2), state: "lost" },
    { url: at(3), state: "lost" },
  ]);
  expect(opened.map(({ state }) => state)).toEqual(["open", "ended", "ended"]);
  expect(services.securityMeter.stats([], 0).refusals).toEqual({ other_identity: 1 });
  connector.close();
});
