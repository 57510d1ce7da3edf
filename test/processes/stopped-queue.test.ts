import { closeSync, openSync, readSync, writeSync } from "node:fs";
import { providers } from "cinnabar/inspect";
import { afterEach, describe, expect, it } from "vitest";
import { Trial } from "./programs/trial.ts";
import { Child, sharedFiles } from "./support/child.ts";
import { freshName } from "./support/fabrics.ts";
import { endAllPeers, openEngine, startServer, until } from "./support/peers.ts";

afterEach(endAllPeers);

// In 2.1 who posts takes a place in the receiver's queue first, and fills it then (docs/design/shm.md, "Stopped
// queues").
const [major, minor] = providers().libfabric.version;
const stops = major === 2 && minor === 1;
const queueOffsetAt = 80n;

/**
 * Takes the next place in the queue of a shared region, as a poster does, and leaves it at that. Nobody else may be
 * posting there.
 */
function takePlace(file: string): void {
  const region = openSync(file, "r+");
  try {
    const word = new BigInt64Array(1);
    readSync(region, word, 0, 8, queueOffsetAt);
    const takenAt = word[0] as bigint;
    readSync(region, word, 0, 8, takenAt);
    word[0] = (word[0] as bigint) + 1n;
    writeSync(region, word, 0, 8, Number(takenAt));
  } finally {
    closeSync(region);
  }
}

describe("a client killed in the midst of a post over shm", () => {
  if (!stops) it.skip(`libfabric ${major}.${minor} has no queue that it could stop`, () => {});

  it.runIf(stops)("does not stop the server: the calls of others are answered", async () => {
    const name = freshName();
    const { server, url } = await startServer({ listen: `shm://${name}`, heartbeatMs: 2_000 });
    const [file] = sharedFiles(name);
    const engine = await openEngine({ heartbeatMs: 2_000 });
    const trial = (await engine.connect(url)).client(Trial, { timeoutMs: 20_000 });
    for (let round = 0; round < 3; round++) {
      const client = new Child("client", { url });
      await client.report("connected");
      await server.report("held");
      await trial.echo({ token: "before" });
      await client.stop();
      takePlace(`/dev/shm/${file}`);
      const calls = ["behind", "it"].map((token) => trial.echo({ token }));
      await client.destroy();
      expect(await Promise.all(calls)).toMatchObject([{ token: "behind" }, { token: "it" }]);
      expect(await server.report("aborted")).toMatchObject({ code: "unavailable" });
    }
    expect(engine.stats().counters).toMatchObject({ sessionsOpened: 1, sessionsLost: 0 });
    await until(async () => (await server.ask<{ sessions: number }>("stats")).sessions === 1);
  });

  it.runIf(stops)("does not keep the next one out", async () => {
    const name = freshName();
    const { server, url } = await startServer({ listen: `shm://${name}`, heartbeatMs: 2_000 });
    const client = new Child("client", { url });
    await client.report("connected");
    await server.report("held");
    await client.stop();
    takePlace(`/dev/shm/${sharedFiles(name)[0]}`);
    await client.destroy();
    const engine = await openEngine({});
    const trial = (await engine.connect(url)).client(Trial);
    expect(await trial.echo({ token: "next" })).toMatchObject({ token: "next" });
  });
});
