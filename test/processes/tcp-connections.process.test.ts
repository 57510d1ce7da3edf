import { connect, type Socket } from "node:net";
import type { EngineStats } from "cinnabar/inspect";
import { afterEach, describe, expect, it } from "vitest";
import { isLong } from "../matrix/long.ts";
import type { ServerSettings } from "./programs/commands.ts";
import { Trial } from "./programs/trial.ts";
import { freshUrl } from "./support/fabrics.ts";
import { endAllPeers, openEngine, startServer, until } from "./support/peers.ts";
import { greeting, message } from "./support/tcp-bytes.ts";

/** Two that say to listen at one port are one to the provider: the first is closed. */
const firstPort = 20_000;

const sockets: Socket[] = [];
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  await endAllPeers();
});

interface Line {
  readonly socket: Socket;
  open: boolean;
}

/** A connection of libfabric's that has sent that, and nothing after it. */
function line(port: number, bytes: Buffer): Promise<Line> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    const made: Line = { socket, open: true };
    sockets.push(socket);
    socket.on("data", () => {});
    socket.on("error", () => {});
    socket.on("close", () => {
      made.open = false;
      resolve(made);
    });
    socket.on("connect", () => socket.write(bytes, () => resolve(made)));
  });
}

/** A server in a process of its own, with a client beside it that calls it all the time. */
async function startVictim(options: Pick<ServerSettings, "limits">) {
  const heartbeatMs = 2000;
  const { server, url } = await startServer({ listen: freshUrl("tcp"), heartbeatMs, ...options });
  const engine = await openEngine({ heartbeatMs });
  const trial = (await engine.connect(url)).client(Trial, { timeoutMs: 20_000 });
  await trial.echo({ token: "first" });
  let calls = 0;
  let slowestMs = 0;
  let stop = false;
  const calling = (async () => {
    while (!stop) {
      const begun = performance.now();
      await trial.echo({ token: "t" });
      slowestMs = Math.max(slowestMs, performance.now() - begun);
      calls++;
    }
  })();
  // A test that fails ends the engine before it looks.
  calling.catch(() => {});
  const connections = async () => (await server.ask<EngineStats>("stats")).ports[0]?.connections;
  const expectUnharmed = async () => {
    stop = true;
    await calling;
    // The machine may be busy; a receive that is held is held for as long as the connection stays.
    expect(slowestMs).toBeLessThan(10_000);
    expect(calls).toBeGreaterThan(20);
    expect(engine.stats().counters).toMatchObject({ callsFailed: 0, sessionsLost: 0, sessionsOpened: 1 });
  };
  return { port: Number(new URL(url).port), connections, expectUnharmed };
}

describe("a tcp server with hostile connections", () => {
  it("serves others while many begin a message and do not go on", async () => {
    const { port, connections, expectUnharmed } = await startVictim({});
    const begun = message({ operation: 0, size: 16 + 16_384, rest: Buffer.alloc(1) });
    const count = isLong ? 1500 : 300;
    const lines: Line[] = [];
    for (let i = 0; i < count; i++)
      lines.push(await line(port, Buffer.concat([greeting(firstPort + i), begun])));
    // Half of the receives are for them at most.
    await until(() => lines.filter(({ open }) => open).length <= 128);
    const before = await connections();
    expect(before?.evicted).toBeGreaterThanOrEqual(count - 128);
    await expectUnharmed();
  });

  it("bounds how many there are, and ends those of nobody that are idle", async () => {
    // 64 sessions, and twice as many connections.
    const limits = { memoryBytes: 64 * 1024 * 1024, maxIdleConnectionMs: 500 };
    const { port, connections, expectUnharmed } = await startVictim({ limits });
    const lines: Line[] = [];
    for (let i = 0; i < 200; i++) lines.push(await line(port, greeting(firstPort + i)));
    await until(() => lines.filter(({ open }) => open).length <= 128);
    await until(() => lines.every(({ open }) => !open));
    await until(async () => (await connections())?.open === 1);
    expect(await connections()).toMatchObject({ evicted: 200, malformed: 0, refused: 0 });
    await expectUnharmed();
  });

  it("ends what belongs to nobody after its time, although bytes go on", async () => {
    const { port, connections, expectUnharmed } = await startVictim({ limits: { maxIdleConnectionMs: 500 } });
    const begun = message({ operation: 0, size: 16 + 16_384, rest: Buffer.alloc(1) });
    const dripping = await line(port, Buffer.concat([greeting(firstPort), begun]));
    const drip = setInterval(() => dripping.socket.write(Buffer.alloc(1)), 50);
    await until(() => !dripping.open);
    clearInterval(drip);
    expect(await connections()).toMatchObject({ evicted: 1, malformed: 0 });
    await expectUnharmed();
  });

  it("ends one that does not say who it is, although no other comes", async () => {
    const { port, connections, expectUnharmed } = await startVictim({});
    const mute = await line(port, Buffer.alloc(0));
    await until(() => !mute.open);
    expect(await connections()).toMatchObject({ evicted: 1, malformed: 0 });
    await expectUnharmed();
  });
});
