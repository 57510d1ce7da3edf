import { error, implement, serverStream, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { failure } from "../matrix/wait.ts";

let runs = 0;
const cents = z.number().transform((euros) => {
  runs++;
  return euros * 100;
});
const later = z.number().transform(async (euros) => {
  runs++;
  return euros * 100;
});
const Prices = service("prices.v1", {
  of: unary({
    input: cents,
    output: z.object({ cents }),
    errors: { TooDear: error({ data: z.object({ cents }) }) },
  }),
  late: unary({ input: later, output: later }),
  all: serverStream({ output: cents }),
  nothing: unary(),
});
const prices = implement(Prices, {
  of: (input, call) => (input > 1000 ? call.fail("TooDear", { cents: 7 }) : { cents: 5 }),
  late: (input) => input,
  async *all() {
    yield 1;
    yield 2;
  },
  nothing: () => {},
});

describe.each(transports)("a transform over $name", (provider) => {
  it("gives each side its result once, whatever it is of", async () => {
    const { api } = await pair(provider, [prices]);
    const client = api(Prices);
    expect(await client.of(1)).toEqual({ cents: 500 });
    expect(await client.late(3)).toBe(30_000);
    expect(await client.all().toArray()).toEqual([100, 200]);
    expect(await failure(client.of(11))).toMatchObject({ reason: "TooDear", data: { cents: 700 } });
    expect(await client.nothing()).toBeUndefined();
  });
});

it("runs once on each side for a value", async () => {
  const { api } = await pair(transports[0] as (typeof transports)[number], [prices]);
  runs = 0;
  await api(Prices).of(1);
  // The input and the output, each validated at both sides.
  expect(runs).toBe(4);
});
