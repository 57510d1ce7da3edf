import { afterEach, describe, expect, it } from "vitest";
import { isLong } from "../matrix/long.ts";
import { Trial } from "./programs/trial.ts";
import { fabricsAndNet, freshUrl, isDevice } from "./support/fabrics.ts";
import { endAllPeers, openEngine, outcome, startServer, until } from "./support/peers.ts";

afterEach(endAllPeers);

const rounds = isLong ? 30 : 6;

describe.each(fabricsAndNet.filter((fabric) => !isDevice(fabric)))(
  "a server over %s that is stopped",
  (fabric) => {
    it("keeps no session that its client has given up", async () => {
      const limits = { maxSessionsByPeer: 2 };
      const { server, url } = await startServer({ listen: freshUrl(fabric), heartbeatMs: 500, limits });
      const engine = await openEngine({ heartbeatMs: 500 });
      for (let round = 0; round < rounds; round++) {
        const trial = (await engine.connect(url)).client(Trial, { timeoutMs: 20_000 });
        expect((await trial.echo({ token: `${round}` })).token).toBe(`${round}`);
        await server.stop();
        expect(await outcome(trial.linger())).toBe("unavailable");
        server.kill("SIGCONT");
      }
      expect((await (await engine.connect(url)).client(Trial).echo({ token: "on" })).token).toBe("on");
      await until(async () => (await server.ask<{ sessions: number }>("stats")).sessions === 1);
    });
  },
);
