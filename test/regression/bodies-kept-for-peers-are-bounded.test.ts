import { bytes, implement, service, unary } from "cinnabar";
import { expect, it } from "vitest";
import { z } from "zod";
import { exact } from "../matrix/exact-limits.ts";
import { pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";

const Long = service("long.v1", { answer: unary({ input: z.number(), output: bytes() }) });
const bodyBytes = 800_000;

it.each(transports)(
  "answers over $name beyond maxOfferBytes fail, and the others arrive",
  async (provider) => {
    const { server, api } = await pair(
      provider,
      [implement(Long, { answer: (n) => new Uint8Array(bodyBytes).fill(n) })],
      { server: { limits: exact({ maxOfferBytes: 1_000_000 }) } },
    );
    const { answer } = api(Long);
    // All but the first share a message, so that they are answered before any of them can have been pulled.
    const results = await Promise.allSettled([1, 2, 3, 4].map((n) => answer(n)));
    const failed = results.filter((result) => result.status === "rejected");
    expect(failed.length).toBeGreaterThan(0);
    expect(failed.length).toBeLessThan(4);
    for (const { reason } of failed) {
      expect(reason).toMatchObject({ code: "resource_exhausted" });
      expect(reason.message).toContain("maxOfferBytes 1000000");
    }
    expect((await answer(9))[bodyBytes - 1]).toBe(9);
    expect(server.stats().counters.bodiesOffered).toBe(5 - failed.length);
  },
);
