import { implement, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { failure, until } from "../matrix/wait.ts";

const Echo = service("echo.v1", { echo: unary({ input: z.unknown(), output: z.unknown() }) });
const echo = implement(Echo, { echo: (value) => value });

/** An input whose getter runs `act` when it is encoded; the schema leaves it alone. */
const input = (act: () => void) => ({
  get trap() {
    act();
    return 1;
  },
});

// The call was settled and then set to "sent": its answer settled it again, and nobody had told the peer.
describe.each(transports)(
  "an input whose getter ends the call while it is encoded, over $name",
  (provider) => {
    it("settles once when it aborts", async () => {
      const { api, client } = await pair(provider, [echo]);
      const controller = new AbortController();
      const call = api(Echo).echo(
        input(() => controller.abort("enough")),
        { signal: controller.signal },
      );
      expect(await failure(call)).toMatchObject({ code: "cancelled", cause: "enough" });
      await until(() => client.stats().calls.out === 0, "the number is free again");
      expect(client.stats().counters).toMatchObject({ callsStarted: 1, callsSucceeded: 0, callsFailed: 1 });
      expect(await api(Echo).echo(2)).toBe(2);
    });

    it("settles once when it closes the peer", async () => {
      const { api, client, peer } = await pair(provider, [echo]);
      expect(await failure(api(Echo).echo(input(() => peer.close())))).toMatchObject({ code: "unavailable" });
      expect(client.stats().counters).toMatchObject({ callsStarted: 1, callsSucceeded: 0, callsFailed: 1 });
      expect(client.stats().calls.out).toBe(0);
    });

    it("settles once when it closes the engine", async () => {
      const { api, client } = await pair(provider, [echo]);
      let closed: Promise<void> | undefined;
      const call = api(Echo).echo(
        input(() => {
          closed = client.close();
        }),
      );
      expect(await failure(call)).toMatchObject({ code: "unavailable" });
      await closed;
      expect(client.stats().counters).toMatchObject({ callsStarted: 1, callsSucceeded: 0, callsFailed: 1 });
    });

    it("refuses a call made from inside, and sends the outer one", async () => {
      const { api } = await pair(provider, [echo]);
      let inner: Promise<unknown> | undefined;
      const outer = api(Echo).echo(
        input(() => {
          inner = failure(api(Echo).echo("inner"));
        }),
      );
      expect(await outer).toEqual({ trap: 1 });
      expect(await inner).toMatchObject({ code: "invalid_argument" });
    });
  },
);
