import { expect, it, vi } from "vitest";
import { ConnectSilence, messagesLost, sendFailure } from "../connection/end-reasons.ts";
import { FakeServices } from "../connection/fake-services.test-support.ts";
import type { SessionTable } from "../connection/session-table.ts";
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
  const ports = { locate: async () => ({}), towards: async () => port };
  const links: Connector = new Connector(
    new FakeServices(),
    { connect } as unknown as SessionTable,
    ports as unknown as Ports,
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
  const ports = { locate: async () => ({}), towards: async () => port };
  const links = new Connector(
    new FakeServices(),
    { connect } as unknown as SessionTable,
    ports as unknown as Ports,
    60_000,
    () => {},
  );
  await expect(links.peer(url, {})).rejects.toBe(opened);
  expect(connect).toHaveBeenCalledTimes(3);
});
