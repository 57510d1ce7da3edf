import { implement, type Schema, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { failure } from "../matrix/wait.ts";

const throwing: Schema<unknown, unknown> = {
  "~standard": {
    version: 1,
    vendor: "by hand",
    validate() {
      throw new Error("a schema's own trouble");
    },
  },
};

const contract = (data: Schema) =>
  service("throwing.v1", { run: unary({ output: z.string(), errors: { Odd: data } }) });

// It was an uncaught exception out of the progress loop: the process ended, or the rest of the message was lost.
describe.each(transports)("a schema of error data that throws at the client, over $name", (provider) => {
  it("fails its own call, and the others in the same message are answered", async () => {
    let odd = true;
    const { api } = await pair(provider, [
      implement(contract(z.unknown()), {
        run(_, call) {
          odd = !odd;
          return odd ? call.fail("Odd", 1) : "fine";
        },
      }),
    ]);
    const { run } = api(contract(throwing));
    const calls = Array.from({ length: 10 }, () => run.result());
    const codes = (await Promise.all(calls)).map((result) => (result.ok ? result.value : result.error.code));
    expect(codes).toEqual(Array.from({ length: 10 }, (_, index) => (index % 2 === 0 ? "fine" : "internal")));
    await run();
    expect((await failure(run())).message).toContain("a schema of the contract threw");
  });
});
