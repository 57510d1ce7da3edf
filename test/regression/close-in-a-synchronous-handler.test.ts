import { Engine, implement, service, unary } from "cinnabar";
import { expect, it } from "vitest";
import { z } from "zod";
import { transports } from "../matrix/providers.ts";

const Log = service("log.v1", { write: unary({ input: z.number(), output: z.number() }) });

it.each(transports)(
  "closing the engine in a handler over $name runs no other call twice, and every caller hears",
  async (provider) => {
    const ran: number[] = [];
    let closed: Promise<void> | undefined;
    const server = await Engine.open({
      listen: provider.freshUrl(),
      serve: [
        implement(Log, {
          write(n) {
            ran.push(n);
            if (n === 1) closed = server.close();
            return n;
          },
        }),
      ],
    });
    await using engine = await Engine.open();
    const { write } = (await engine.connect(server.urls[0] as string)).client(Log);
    // The first leaves alone, the others share messages that lie behind it.
    const results = await Promise.allSettled([1, 2, 3, 4, 5].map((n) => write(n)));
    await closed;
    expect(new Set(ran).size).toBe(ran.length);
    for (const result of results) {
      if (result.status === "rejected") expect(result.reason).toMatchObject({ code: "unavailable" });
    }
    expect(engine.stats().calls.out).toBe(0);
  },
);
