import { connect, type Socket } from "node:net";
import type { EngineStats } from "cinnabar/inspect";
import { afterEach, describe, expect, it } from "vitest";
import { isLong } from "../matrix/long.ts";
import { seeded } from "../matrix/random.ts";
import { Trial } from "./programs/trial.ts";
import { freshUrl } from "./support/fabrics.ts";
import { endAllPeers, openEngine, startServer } from "./support/peers.ts";
import { greeting, message } from "./support/tcp-bytes.ts";

afterEach(endAllPeers);

/** What only somebody who wants harm sends. Each ended the process, or wrote where nothing was, before. */
const attacks: Readonly<Record<string, Buffer>> = {
  "an acknowledgement that nobody awaits": message({ operation: 0, detail: 2 }),
  "an answer to no read": message({ operation: 3, rest: Buffer.alloc(64) }),
  "a read of 255 runs": message({ operation: 2, runs: 255, headerBytes: 112, rest: Buffer.alloc(96, 1) }),
  "a write of five runs": message({ operation: 4, runs: 5, headerBytes: 112, rest: Buffer.alloc(96, 1) }),
  "a write without runs": message({ operation: 4, rest: Buffer.alloc(1000, 1) }),
  "a message shorter than its header": message({ operation: 0, size: 1, rest: Buffer.alloc(40) }),
  "a header without bytes": message({ operation: 0, headerBytes: 0, rest: Buffer.alloc(40) }),
  "a tagged message": message({ operation: 1, rest: Buffer.alloc(40) }),
  "an offer of a tagged message": message({
    operation: 5,
    headerBytes: 32,
    size: 32,
    rest: Buffer.alloc(16),
  }),
  "an operation that is none": message({ operation: 250, rest: Buffer.alloc(40) }),
};

/** Sends bytes and waits until the server closes, or for as long as a test may wait for nothing. */
function attack(port: number, bytes: Buffer, ends = false): Promise<"closed" | "open"> {
  return new Promise((resolve) => {
    const socket: Socket = connect(port, "127.0.0.1");
    const patience = setTimeout(() => finish("open"), 5000);
    const finish = (how: "closed" | "open") => {
      clearTimeout(patience);
      socket.destroy();
      resolve(how);
    };
    socket.on("connect", () => (ends ? socket.end(bytes) : socket.write(bytes)));
    socket.on("data", () => {});
    socket.on("error", () => finish("closed"));
    socket.on("close", () => finish("closed"));
  });
}

/** A server in a process of its own, with a client beside it that calls it all the time. */
async function startVictim() {
  const { server, url } = await startServer({ listen: freshUrl("tcp") });
  const engine = await openEngine();
  const trial = (await engine.connect(url)).client(Trial, { timeoutMs: 20_000 });
  await trial.echo({ token: "" });
  let stop = false;
  const calling = (async () => {
    let calls = 0;
    for (; !stop; calls++) {
      await trial.echo({ token: `${calls}` });
      await new Promise(setImmediate);
    }
    return calls;
  })();
  calling.catch(() => {});
  const counts = async () => (await server.ask<EngineStats>("stats")).ports[0]?.connections;
  return {
    server,
    port: Number(new URL(url.replace("tcp:", "http:")).port),
    counts,
    /** The honest client has noticed nothing, and only its connection is left. */
    async expectUnharmed() {
      stop = true;
      expect(await calling).toBeGreaterThan(0);
      await expect.poll(async () => (await counts())?.open, { timeout: 10_000, interval: 10 }).toBe(1);
      expect(engine.stats().counters).toMatchObject({ callsFailed: 0, sessionsLost: 0 });
    },
  };
}

describe("over tcp a server", () => {
  it("ends the connections that would have ended it", async () => {
    const victim = await startVictim();
    for (const [name, bytes] of Object.entries(attacks))
      expect([name, await attack(victim.port, Buffer.concat([greeting(), bytes]))]).toEqual([name, "closed"]);
    expect((await victim.counts())?.malformed).toBe(Object.keys(attacks).length);
    await victim.expectUnharmed();
  });

  it("ends connections that do not begin as libfabric's do", async () => {
    const victim = await startVictim();
    const swapped = greeting();
    swapped.writeBigUInt64BE(1n, 24);
    const long = greeting();
    long.writeUInt16BE(256, 2);
    for (const bytes of [
      Buffer.from(`GET / HTTP/1.1\r\nHost: ${"x".repeat(40)}\r\n\r\n`),
      swapped,
      long,
      Buffer.alloc(64),
    ])
      expect(await attack(victim.port, bytes)).toBe("closed");
    // Those that are cut off, whatever error the provider met last.
    for (const bytes of [0, 1, 31, 32, 39])
      expect(await attack(victim.port, greeting().subarray(0, bytes), true)).toBe("closed");
    await victim.expectUnharmed();
  });

  it("holds a bounded number of connections that say nothing", async () => {
    const victim = await startVictim();
    const silent: Socket[] = [];
    for (let i = 0; i < 1_100; i++) {
      const socket = connect(victim.port, "127.0.0.1");
      socket.on("error", () => {});
      silent.push(socket);
      await new Promise((resolve) => socket.once("connect", resolve));
    }
    // 1,024 of them, the honest one, and one that may be on its way out.
    await expect
      .poll(async () => (await victim.counts())?.open ?? 0, { timeout: 10_000, interval: 10 })
      .toBeLessThan(1_028);
    for (const socket of silent) socket.destroy();
    await victim.expectUnharmed();
  });

  it("stands streams that were changed at random", async () => {
    const victim = await startVictim();
    const next = seeded(4711);
    const draw = (below: number) => Math.floor(next() * below);
    for (let round = 0; round < (isLong ? 5000 : 150); round++) {
      const parts = [greeting()];
      for (let i = draw(4); i >= 0; i--) {
        const runs = draw(6);
        const rest = Buffer.alloc(draw(3) === 0 ? 24 * runs : draw(200), draw(256));
        parts.push(message({ operation: draw(9), flags: draw(16), detail: draw(4), runs, rest }));
      }
      const bytes = Buffer.concat(parts);
      for (let i = draw(4); i > 0; i--) bytes[draw(bytes.byteLength)] = draw(256);
      await attack(victim.port, bytes, true);
    }
    await victim.expectUnharmed();
  });
});
