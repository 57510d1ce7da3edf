import { afterEach, describe, expect, it } from "vitest";
import { isLong } from "../matrix/long.ts";
import { Trial } from "./programs/trial.ts";
import { Child } from "./support/child.ts";
import { anyFabrics, freshUrl } from "./support/fabrics.ts";
import { endAllPeers, openEngine, startServer, until } from "./support/peers.ts";

afterEach(endAllPeers);

const restarts = isLong ? 9 : 4;
const askers = 16;

describe.each(anyFabrics)(
  "a rolling restart of three servers over %s, under load and without retries",
  (fabric) => {
    it("shows no error to a balanced peer, and no call twice", async () => {
      const servers = await Promise.all([0, 1, 2].map(() => startServer({ listen: freshUrl(fabric) })));
      const engine = await openEngine();
      const balanced = await engine.connect(
        servers.map(({ url }) => url),
        { reconnect: { maxDelayMs: 50 } },
      );
      await until(() => balanced.backends.every(({ state }) => state === "connected"));
      const trial = balanced.client(Trial, { timeoutMs: 50_000 });
      const errors: unknown[] = [];
      let answers = 0;
      const answeredBy = new Map<string, number>();
      let isOver = false;
      const ask = async (name: string) => {
        for (let number = 0; !isOver; number++) {
          try {
            // One of two may not be executed twice; a server counts how often it was.
            const [{ life }, noted] = await Promise.all([
              trial.echo({ token: name }),
              trial.note({ writer: `${name}.${number}`, number, load: "x".repeat(200) }),
            ]);
            if (noted !== 1) errors.push(`${name}.${number} was executed ${noted} times`);
            answeredBy.set(life, (answeredBy.get(life) ?? 0) + 1);
            answers++;
          } catch (error) {
            errors.push(error);
          }
        }
      };
      const all = Promise.all(Array.from({ length: askers }, (_, index) => ask(`asker-${index}`)));
      const answersOf = (life: string) => answeredBy.get(life) ?? 0;
      for (let restart = 0; restart < restarts; restart++) {
        const index = restart % servers.length;
        const { server, url, life } = servers[index] as (typeof servers)[number];
        await until(() => answersOf(life) > 10);
        expect(await server.ask("drain")).toMatchObject({ aborted: [] });
        await server.ask("exit");
        await server.ended;
        const next = new Child("server", { listen: url });
        servers[index] = { server: next, url, life: (await next.report("listening")).life };
        await until(() => balanced.backends[index]?.state === "connected");
      }
      await until(() => servers.every(({ life }) => answersOf(life) > 10));
      isOver = true;
      await all;
      expect(errors).toEqual([]);
      expect(answers).toBeGreaterThan(restarts * 10);
    }, 60_000);
  },
);
