import { expect, it, vi } from "vitest";
import { FakeHost } from "../session/fake-host.test-support.ts";
import { ConnectSilence, type SessionTable } from "../session/session-table.ts";
import { Links } from "./links.ts";
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
  const links: Links = new Links(
    new FakeHost(),
    { connect } as unknown as SessionTable,
    ports as unknown as Ports,
    60_000,
    () => {},
  );
  await expect(links.peer(url, {})).rejects.toThrow(`${url} has been closed`);
  await new Promise(setImmediate);
  expect(connect).toHaveBeenCalledOnce();
});
