import { bulk, bytes, implement, service, unary } from "cinnabar";
import type { EngineStats } from "cinnabar/inspect";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { failure, untilTurn } from "../matrix/wait.ts";

const Long = service("long.v1", {
  answer: unary({ output: bytes() }),
  fill: unary({ input: z.object({ into: bulk("write") }) }),
});

const longBytes = 32 << 20;
const patiently = { timeout: 20_000, interval: 2 };

/**
 * Over tcp this memory stayed in quarantine until its engine closed: its peer said goodbye in the middle of a transfer,
 * and nothing after it.
 */
describe.each(transports)(
  "memory lent over $name to a peer that closes in the middle of a transfer",
  (provider) => {
    let putting = false;
    const open = () => {
      const answer = new Uint8Array(longBytes);
      return pair(
        provider,
        [
          implement(Long, {
            answer: () => answer,
            async fill({ into }, call) {
              const put = call.put(answer, into);
              putting = true;
              await put;
            },
          }),
        ],
        { endsHard: true },
      );
    };
    const nothing = { quarantinedBytes: 0, offeredBytes: 0 };
    const held = ({ quarantinedBytes, offeredBytes }: EngineStats) => ({ quarantinedBytes, offeredBytes });

    it("comes back when it was an answer that the peer pulls", async () => {
      const { api, client, server } = await open();
      const failed = failure(api(Long).answer());
      await untilTurn(() => client.stats().pullingBytes > 0, "the client pulls");
      await client.close();
      expect(await failed).toMatchObject({ code: "unavailable" });
      await untilTurn(() => server.stats().sessions === 0, "the server hears of it");
      await expect.poll(() => held(server.stats()), patiently).toEqual(nothing);
    });

    it("comes back when it was a region that the peer writes", async () => {
      const { api, client, server } = await open();
      using into = client.expose(new Uint8Array(longBytes), { access: "write" });
      const failed = failure(api(Long).fill({ into }));
      await untilTurn(() => putting, "it puts");
      await server.close();
      expect(await failed).toMatchObject({ code: "unavailable" });
      await expect.poll(() => [held(client.stats()), into.grants], patiently).toEqual([nothing, 0]);
    });
  },
);
