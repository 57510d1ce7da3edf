import { describe, expect, it, onTestFinished, vi } from "vitest";
import { RpcError } from "../base/errors/rpc-error.ts";
import { FakeServices } from "../session/connection/fake-services.test-support.ts";
import type { LaneAddress } from "../wire/handshake.ts";
import { reconnectField, resolveBalanceOptions } from "./connect-options.ts";
import { PeerConnection } from "./peer-connection.ts";
import { ServerBackend } from "./server-backend.ts";

const lane = (incarnation: bigint): LaneAddress => ({ url: "mem://lane", incarnation });
const nobody = () => Promise.reject(new RpcError({ code: "unavailable", message: "nobody there" }));

function serverWith(...lanes: LaneAddress[]) {
  const services = new FakeServices();
  /** Whether the server took calls each time that its set was told of a change. */
  const took: boolean[] = [];
  const set = { onBackendChanged: () => void took.push(server.takesCalls), onBackendSettled: () => {} };
  const gone = vi.spyOn(PeerConnection.prototype, "onGone");
  onTestFinished(() => gone.mockRestore());
  const connectTo = (url: string) =>
    new PeerConnection(url, services, { open: nobody, reconnect: reconnectField.fallback });
  const options = { ...resolveBalanceOptions({}, 1000), pins: true };
  const terms = { options, connect: connectTo };
  const server: ServerBackend = new ServerBackend(connectTo("mem://dispatcher"), options, terms, set);
  server.onLanes(lanes, false);
  return { gone, server, services, took };
}

describe("lanes that are not named any more", () => {
  it("have ended for certain, says who named them", () => {
    const { gone, server } = serverWith(lane(1n));
    server.onLanes([lane(0n)], true);
    expect(gone.mock.calls).toEqual([[1n, true]]);
  });

  it("may live, for all that another engine at the address knows of them", () => {
    const { gone, server } = serverWith(lane(1n));
    server.onLanes([lane(2n)], false);
    expect(gone.mock.calls).toEqual([[1n, false]]);
  });
});

it("a server that announces no lanes any more takes calls itself, and its set hears of that", async () => {
  const { server, took } = serverWith(lane(1n));
  await new Promise(setImmediate);
  expect(took.at(-1)).toBe(false);
  server.onLanes([], true);
  expect(took.at(-1)).toBe(true);
});

it("lanes are those of the address where the server is reached now, which may be of another kind than before", () => {
  const { server } = serverWith(lane(1n));
  server.connection.url = "tcp://127.0.0.1:7400";
  server.onLanes([{ url: "tcp://0.0.0.0:7401", incarnation: 2n }], false);
  expect(server.laneStats.map(({ url }) => url)).toEqual(["tcp://127.0.0.1:7401"]);
});

it("a server whose connection is closed tries neither itself nor its lanes again", async () => {
  const { server, services } = serverWith(lane(1n));
  await server.connect().catch(() => {});
  await new Promise(setImmediate);
  // One for the dispatcher, which is kept connected while it has lanes, and one for the lane.
  expect(services.clock.timers).toBe(2);
  server.connection.close();
  expect(services.clock.timers).toBe(0);
});
