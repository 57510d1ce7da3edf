import { type AddressInfo, createServer, type Socket } from "node:net";
import { RpcError } from "cinnabar";
import type { EngineStats } from "cinnabar/inspect";
import { afterEach, describe, expect, it } from "vitest";
import { parseUrl } from "../../src/fabric/libfabric/url.ts";
import { NativePort } from "../../src/fabric/native-port.ts";
import { defaultLayout, type PortSink } from "../../src/fabric/port.ts";
import { messageOf, packedGreeting } from "../../src/session/connection/fake-services.test-support.ts";
import { frameKind } from "../../src/wire/frame.ts";
import { isLong } from "../matrix/long.ts";
import { isOverNet } from "../matrix/over-net.ts";
import { Trial } from "./programs/trial.ts";
import { Child } from "./support/child.ts";
import { freshUrl, tcpFabric } from "./support/fabrics.ts";
import { endAllPeers, openEngine, outcome, startServer, until } from "./support/peers.ts";

afterEach(endAllPeers);

/** What became of each engine of a crowd. */
interface Ends {
  readonly ms: number[];
  readonly errors: string[];
}

/** So many engines, each of which has a port of its own. */
const [processes, each] = isLong ? [10, 100] : [4, 32];
const all = processes * each;
/**
 * Other work beside a thousand engines leaves the one server little of the processors: with twenty threads that compute,
 * 60 s were not enough for all.
 */
const patient = { timeoutMs: isLong ? 170_000 : 60_000 };
const crowdTimeoutMs = 10 * 60_000;
/** What a call beside them may take: with a load average of 25 some took more than 10 s. */
const besideMs = isLong ? 60_000 : 8_000;
/** A server that nobody calls but the honest client. */
const atRest = { sessions: 1, calls: { in: 0 }, queuedBytes: 0, deadlines: 0, quarantinedBytes: 0 };

/** The server, with a client that calls it all the time and must not notice what happens beside it. */
async function startWatched() {
  const { server, url } = await startServer({ listen: freshUrl(tcpFabric) });
  const engine = await openEngine();
  const trial = (await engine.connect(url)).client(Trial, { timeoutMs: besideMs + 2_000 });
  const errors: unknown[] = [];
  let longestMs = 0;
  let calls = 0;
  let isOver = false;
  const calling = (async () => {
    while (!isOver) {
      const begunMs = performance.now();
      await trial.echo({ token: "honest" }).catch((error: unknown) => errors.push(error));
      longestMs = Math.max(longestMs, performance.now() - begunMs);
      calls++;
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
  })();
  const stats = () => server.ask<EngineStats>("stats");
  return {
    server,
    url,
    stats,
    /** `withinMs` bounds a call of the honest client: generous, for a machine that does much else. */
    async expectUnharmed(withinMs: number) {
      await expect
        .poll(stats, { timeout: 20_000, interval: 50 })
        .toMatchObject({ ...atRest, ports: [{ sends: 0, freeSlots: 64, addresses: 1 }] });
      isOver = true;
      await calling;
      expect(errors).toEqual([]);
      expect(calls).toBeGreaterThan(0);
      expect(longestMs).toBeLessThan(withinMs);
    },
  };
}

async function gather(url: string): Promise<Child[]> {
  const crowds = Array.from({ length: processes }, () => new Child("crowd", { url, engines: each }));
  for (const crowd of crowds) await crowd.report("opened");
  return crowds;
}

async function askAll(crowds: readonly Child[], command: string): Promise<Ends> {
  const ends = await Promise.all(crowds.map((crowd) => crowd.ask<Ends>(command, patient)));
  return { ms: ends.flatMap(({ ms }) => ms), errors: ends.flatMap(({ errors }) => errors) };
}

describe(`clients over ${tcpFabric} that connect at once`, () => {
  it(
    "are all welcomed, leave nothing when they are killed, and are followed by others at once",
    async () => {
      const { url, stats, expectUnharmed } = await startWatched();
      for (let round = 0; round < 2; round++) {
        const crowds = await gather(url);
        const connected = await askAll(crowds, "connect");
        expect(connected.errors).toEqual([]);
        expect(connected.ms).toHaveLength(all);
        const { ms, errors } = await askAll(crowds, "echo");
        expect([ms.length, errors]).toEqual([all, []]);
        await until(async () => (await stats()).sessions === all + 1);
        await Promise.all(crowds.map((crowd) => crowd.destroy()));
        // Not before they are all known to be dead: while their sends wait, others must get their turn.
        const newcomer = await openEngine();
        await (await newcomer.connect(url)).client(Trial).echo({ token: "new" });
        await newcomer.close();
      }
      await expectUnharmed(besideMs);
    },
    crowdTimeoutMs,
  );

  it(
    "make one session each with a server that stood still meanwhile",
    async () => {
      const { server, url } = await startServer({ listen: freshUrl(tcpFabric) });
      const crowds = await gather(url);
      await server.stop();
      const connecting = askAll(crowds, "connect");
      // Longer than the time after which a hello is repeated.
      await new Promise((resolve) => setTimeout(resolve, 1_300));
      server.kill("SIGCONT");
      expect((await connecting).errors).toEqual([]);
      expect((await askAll(crowds, "echo")).errors).toEqual([]);
      await expect
        .poll(() => server.ask<EngineStats>("stats"), { timeout: 20_000, interval: 50 })
        .toMatchObject({ sessions: all, ports: [{ sends: 0, freeSlots: 64 }], counters: { malformed: 0 } });
    },
    crowdTimeoutMs,
  );
});

describe(`a server over ${tcpFabric}`, () => {
  // A return address is of one's own choice, and net has none.
  it.skipIf(isOverNet)(
    "recovers from hellos whose addresses accept connections and say nothing",
    async () => {
      const { url, stats, expectUnharmed } = await startWatched();
      const taken: Socket[] = [];
      const silent = createServer((socket) => taken.push(socket.on("error", () => {}).resume()));
      await new Promise<void>((resolve) => silent.listen(0, "0.0.0.0", resolve));
      const { port: silentPort } = silent.address() as AddressInfo;
      const address = new Uint8Array(16);
      new DataView(address.buffer).setUint16(0, 2, true); // AF_INET
      new DataView(address.buffer).setUint16(2, silentPort);

      const target = parseUrl(url);
      const port = await NativePort.open({ ...target, port: 0 }, false, defaultLayout);
      const victim = port.admit(port.route({ ...target, from: "127.0.0.1" }).address);
      let sent = 0;
      for (let number = 1; number <= 150; number++) {
        // Each at an address of its own, so that there is a connection to each.
        address.set([127, 0, 1, number], 4);
        const nonce = BigInt(number);
        const greeting = packedGreeting({ address, services: [], incarnation: nonce, nonce });
        const hello = messageOf(0, 0n, [{ kind: frameKind.hello, body: { ...greeting, msg: 16_384 } }]);
        for (let slot = port.takeSlot(); ; slot = port.takeSlot()) {
          if (slot >= 0) {
            port.slab.set(hello, slot);
            port.send(victim, slot, hello.byteLength, {
              onSent: (status) => void (sent += status === 0 ? 1 : 0),
            });
            break;
          }
          port.progress(0, ignored);
          await new Promise(setImmediate);
        }
      }
      await until(() => {
        port.progress(0, ignored);
        return sent === 150;
      });
      await until(async () => (await stats()).sessions > 1);
      const newcomer = await openEngine();
      const begunMs = performance.now();
      await (await newcomer.connect(url)).client(Trial).echo({ token: "new" });
      // Long before the silent ones are given up.
      expect(performance.now() - begunMs).toBeLessThan(4_000);
      await newcomer.close();
      await expectUnharmed(4_000);
      // Nothing goes on trying to reach them.
      await until(() => taken.every((socket) => socket.destroyed || socket.readableEnded || socket.closed));
      port.close();
      for (const socket of taken) socket.destroy();
      silent.close();
    },
    120_000,
  );

  it("gets its slots back from peers that have stopped to read, and serves others", async () => {
    const { server, url, stats, expectUnharmed } = await startWatched();
    const clients = Array.from({ length: 5 }, () => new Child("client", { url, holds: false }));
    // More than the sockets hold: the provider keeps the slots of what it could not write.
    const [count, length] = [600, 15_000];
    for (const client of clients) {
      await client.report("connected");
      await client.ask("waits", count);
    }
    await until(async () => (await stats()).calls.in >= clients.length * count);
    for (const client of clients) await client.stop();
    await server.ask("releaseAll", length);
    await until(async () => (await stats()).sessions === 1);
    await expect
      .poll(async () => (await stats()).ports[0], { timeout: 20_000, interval: 50 })
      .toMatchObject({ sends: 0, freeSlots: 64 });
    await Promise.all(clients.map((client) => client.destroy()));
    await expectUnharmed(8_000);
  }, 120_000);
});

describe(`a client over ${tcpFabric}`, () => {
  it("calls others on while a resolver names 256 servers that say nothing", async () => {
    const { url } = await startServer({ listen: freshUrl(tcpFabric) });
    const taken: Socket[] = [];
    const silent = createServer((socket) => taken.push(socket.on("error", () => {}).resume()));
    await new Promise<void>((resolve) => silent.listen(0, "0.0.0.0", resolve));
    const { port } = silent.address() as AddressInfo;
    const urls = Array.from({ length: 256 }, (_, i) => `${tcpFabric}://127.0.1.${i}:${port}`);
    const engine = await openEngine();
    const trial = (await engine.connect(url)).client(Trial, { timeoutMs: 60_000 });
    let timeoutMs = 1_000;
    let longestMs = Number.POSITIVE_INFINITY;
    // Until the servers were tried and no call took as long as the attempt. A busy machine needs several times as long
    // for both; a call that waits for the servers takes as long as any attempt does.
    while (taken.length <= 200 || longestMs >= 0.75 * timeoutMs) {
      timeoutMs *= 2;
      expect(timeoutMs).toBeLessThanOrEqual(32_000);
      longestMs = 0;
      let isOver = false;
      const misled = outcome(engine.connect(urls, { timeoutMs })).finally(() => {
        isOver = true;
      });
      while (!isOver) {
        const begunMs = performance.now();
        await trial.echo({ token: "a" });
        longestMs = Math.max(longestMs, performance.now() - begunMs);
      }
      expect(await misled).toBe("unavailable");
    }
    await until(() => engine.stats().ports[0]?.freeSlots === 64);
    for (const socket of taken) socket.destroy();
    silent.close();
  }, 120_000);
});

describe(`a client over ${tcpFabric} that called before and is idle`, () => {
  it("is answered at its first call after its server was killed and started again", async () => {
    const first = await startServer({ listen: freshUrl(tcpFabric) });
    const engine = await openEngine();
    const peer = await engine.connect(first.url);
    const trial = peer.client(Trial);
    await trial.echo({ token: "a" });
    await first.server.destroy();
    await until(() => peer.state === "lost");
    const second = await startServer({ listen: first.url });
    expect(await trial.echo({ token: "b" })).toEqual({ token: "b", life: second.life });
  });

  it("has no session any more soon after it was killed, though nobody called it", async () => {
    const { url, server } = await startServer({ listen: freshUrl(tcpFabric), limits: { maxSessions: 1 } });
    const idle = new Child("client", { url, holds: false });
    await idle.report("connected");
    await idle.destroy();
    const engine = await openEngine();
    // The only place is taken, by a dead peer or by nobody.
    const trial = (await engine.connect(url)).client(Trial);
    await trial.echo({ token: "a" });
    expect(await server.ask("stats")).toMatchObject({ sessions: 1 });
    const full = (await openEngine()).connect(url);
    await expect(full).rejects.toBeInstanceOf(RpcError);
    await expect(full).rejects.toMatchObject({ code: "resource_exhausted" });
  });
});

const ignored: PortSink = {
  onMessage() {},
  onMessageLost() {},
  onPutNotification() {},
  onPeerGone() {},
};
