import { expect, it, vi } from "vitest";
import { defaultWindow } from "../base/flow/in-flight-window.ts";
import { identityOfPsk } from "../security/identity.ts";
import { resolveSecurity } from "../security/security-options.ts";
import { Exchange } from "../session/calls/exchange.ts";
import { FakePort } from "../session/connection/fake-port.test-support.ts";
import { FakeServices, peerGreeting } from "../session/connection/fake-services.test-support.ts";
import { Session } from "../session/connection/session.ts";
import type { ConnectRequest, SessionTable } from "../session/connection/session-table.ts";
import { ConnectSilence, messagesLost, sendFailure } from "../session/opening/end-reasons.ts";
import { Nonce } from "../wire/message.ts";
import { Connector } from "./connector.ts";
import type { Ports } from "./ports.ts";

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
    .mockRejectedValueOnce(messagesLost(url, 1))
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

it("a lane with another identity than its dispatcher gets no calls", async () => {
  const services = new FakeServices();
  services.security = resolveSecurity("test", "security", {
    psk: { identity: "front", key: new Uint8Array(32) },
  });
  const lane = (number: number) => `tcp://127.0.0.1:${7400 + number}`;
  const opened: { readonly peerName: string; readonly provenName: string | undefined; session: Session }[] =
    [];
  const identities: Readonly<Record<string, string>> = {
    [url]: "front",
    [lane(1)]: "front",
    [lane(2)]: "thief",
  };
  const connect = async ({ peerName, provenName }: ConnectRequest) => {
    const session = new Session(
      services.terms([(context) => new Exchange(context)]),
      new FakePort(8),
      {
        address: 0,
        index: opened.length + 1,
        nonce: Nonce.draw(),
        peerName,
      },
      defaultWindow,
    );
    session.identity = identityOfPsk(identities[peerName] as string);
    const lanes = peerName === url ? [1, 2].map((n) => ({ url: lane(n), incarnation: BigInt(n) })) : [];
    session.begin({ ...peerGreeting, incarnation: BigInt(opened.length + 1), lanes });
    opened.push({ provenName, peerName, session });
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
  const peer = await connector.peer(url, {});
  expect(peer.stats().lanes).toMatchObject([
    { url: lane(1), state: "connected" },
    { url: lane(2), state: "lost" },
  ]);
  expect(opened.map(({ peerName, provenName, session }) => [peerName, provenName, session.state])).toEqual([
    [url, undefined, "open"],
    [lane(1), "127.0.0.1", "open"],
    [lane(2), "127.0.0.1", "ended"],
  ]);
  expect(services.securityMeter.stats([], 0).refusals).toEqual({ other_identity: 1 });
  connector.close();
});
