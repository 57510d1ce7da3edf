import { execFile } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { type AddressInfo, createServer, connect as dial } from "node:net";
import { promisify } from "node:util";
import type { EngineStats } from "cinnabar/inspect";
import { afterEach, describe, expect, it } from "vitest";
import { isLong } from "../matrix/long.ts";
import { Trial } from "./programs/trial.ts";
import { freshUrl, tcpFabric } from "./support/fabrics.ts";
import { endAllPeers, mebi, openEngine, outcome, startServer, until } from "./support/peers.ts";

afterEach(endAllPeers);

const run = promisify(execFile);

/** A TCP connection of this process, by the two ports. */
type Connection = `${number} ${number}`;

/** The process goes on while it happens. */
async function reset(connections: readonly Connection[]): Promise<void> {
  for (const connection of connections) {
    const [local, remote] = connection.split(" ");
    const filter = ["sport", "=", `:${local}`, "dport", "=", `:${remote}`];
    await run("ss", ["-K", "-tn", ...filter]);
  }
}

const same = (connection: Connection): Connection => connection;
const otherEnd = (connection: Connection): Connection =>
  connection.split(" ").reverse().join(" ") as Connection;

const established = "01";

/** The established TCP connections over IPv4 of this process. */
function connections(): Connection[] {
  const sockets = new Set<string>();
  for (const descriptor of readdirSync("/proc/self/fd")) {
    try {
      sockets.add(readlinkSync(`/proc/self/fd/${descriptor}`));
    } catch {
      // The descriptor that lists the others.
    }
  }
  const portOf = (address = "") => Number.parseInt(address.split(":")[1] ?? "", 16);
  return readFileSync("/proc/self/net/tcp", "utf8")
    .trim()
    .split("\n")
    .map((line) => line.trim().split(/\s+/))
    .filter(([, , , state, , , , , , inode]) => state === established && sockets.has(`socket:[${inode}]`))
    .map(([, local, remote]) => `${portOf(local)} ${portOf(remote)}` as const);
}

/** Whether this user and kernel may reset a connection (CAP_NET_ADMIN, CONFIG_INET_DIAG_DESTROY). */
async function mayReset(): Promise<boolean> {
  const server = createServer((socket) => socket.on("error", () => {})).listen(0, "127.0.0.1");
  await once(server, "listening");
  const socket = dial((server.address() as AddressInfo).port, "127.0.0.1");
  try {
    await once(socket, "connect");
    const closed = new Promise<boolean>((resolve) => {
      socket.once("error", () => resolve(true));
      socket.once("close", () => resolve(true));
      setTimeout(resolve, 2_000, false).unref();
    });
    await reset([`${socket.localPort as number} ${socket.remotePort as number}`]);
    return await closed;
  } catch {
    return false;
  } finally {
    socket.destroy();
    server.close();
  }
}

/** A server that stands still for a moment is not to be lost for it. */
const heartbeatMs = 2_000;
const rounds = isLong ? 40 : 6;

describe.skipIf(!(await mayReset()))(
  `a connection over ${tcpFabric} that is reset while both processes live`,
  () => {
    it("ends the calls whose requests it lost, though nobody was told", async () => {
      const { server, url } = await startServer({ listen: freshUrl(tcpFabric), heartbeatMs });
      const others = connections();
      const engine = await openEngine({ heartbeatMs });
      const trial = (await engine.connect(url)).client(Trial, { timeoutMs: 600_000 });
      for (let round = 0; round < 3; round++) {
        expect(await outcome(trial.nothing())).toBe("answered");
        const used = connections().filter((connection) => !others.includes(connection));
        // The socket of a process that stands still takes some of this. The rest lies in this side's socket and goes with
        // it, though the provider has told that it was sent.
        await server.stop();
        // One after the other, so that each has a message of its own, and that socket takes several as a whole.
        const calls: Promise<string>[] = [];
        for (let count = 1; count <= 14; count++) {
          calls.push(outcome(trial.echo({ token: "t".repeat(15_000) })));
          await until(() => engine.stats().calls.out === count && engine.stats().ports[0]?.sends === 0);
        }
        await reset(used);
        server.kill("SIGCONT");
        // What the server had taken may be answered, if it notices the reset before it answers. That is rare.
        const lost = (await Promise.all(calls)).filter((how) => how !== "answered");
        expect(new Set(lost)).toEqual(new Set(["unavailable"]));
      }
      expect(engine.stats().counters.malformed).toBe(0);
    }, 120_000);

    it("ends the calls under it, and nobody else's", async () => {
      const { server, url } = await startServer({ listen: freshUrl(tcpFabric), heartbeatMs });
      const others = connections();
      const engine = await openEngine({ heartbeatMs });
      const peer = await engine.connect(url);
      // Beyond the time limit of the test: no call ends by its deadline.
      const trial = peer.client(Trial, { timeoutMs: 600_000 });
      let victims = connections().filter((connection) => !others.includes(connection));
      expect(victims).toHaveLength(1);
      // Beside it somebody whose connection is not touched, and who must not notice.
      const honest = (await (await openEngine({ heartbeatMs })).connect(url)).client(Trial);
      const spared = connections().filter((connection) => !victims.includes(connection));

      let done = false;
      const outcomes = new Map<string, number>();
      const note = (how: string) => outcomes.set(how, (outcomes.get(how) ?? 0) + 1);
      const caller = async () => {
        while (!done) note(await outcome(trial.echo({ token: "x".repeat(2_000) })));
      };
      const pauser = async () => {
        while (!done) note(await outcome(trial.pause({ ms: 20 })));
      };
      const lender = async () => {
        const region = engine.expose(new Uint8Array(mebi), { access: "write" });
        while (!done) note(await outcome(trial.put({ into: region, value: 1 })));
        await region.revoke();
        region.dispose();
      };
      const faults: string[] = [];
      const honestCaller = async () => {
        while (!done) {
          const how = await outcome(honest.echo({ token: "honest" }));
          if (how !== "answered") faults.push(how);
        }
      };
      const callers = [
        ...Array.from({ length: 32 }, caller),
        ...Array.from({ length: 8 }, pauser),
        lender(),
        honestCaller(),
      ];
      for (let round = 0; round < rounds; round++) {
        const before = outcomes.get("answered") ?? 0;
        // It has connected again, and is in full swing.
        await until(() => (outcomes.get("answered") ?? 0) > before + 100);
        victims = connections().filter((connection) => !spared.includes(connection));
        const isStill = round % 2 === 0;
        if (isStill) await server.stop();
        if (isStill) await until(() => engine.stats().ports.every(({ sends }) => sends === 0));
        await reset(victims.map(isStill ? otherEnd : same));
        if (isStill) server.kill("SIGCONT");
      }
      done = true;
      await Promise.all(callers);
      expect(faults).toEqual([]);
      expect([...outcomes.keys()].filter((how) => how !== "answered" && how !== "unavailable")).toEqual([]);
      // A call that failed here is listed until its peer has confirmed the cancel.
      await until(() => engine.stats().calls.out === 0);
      expect(engine.stats().counters.malformed).toBe(0);
      expect(await outcome(trial.nothing())).toBe("answered");
      await until(async () => ((await server.ask("stats")) as EngineStats).calls.in === 0);
    }, 60_000);
  },
);
