import { bulk, implement, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";

const Scatter = service("scatter.v1", {
  run: unary({ input: z.object({ into: bulk("write") }), output: z.number() }),
});

// Node printed a MaxListenersExceededWarning from the eleventh transfer on.
describe.each(transports)("many transfers of one call over $name", (provider) => {
  it("bring no warning", async () => {
    const warnings: unknown[] = [];
    const warn = (warning: unknown) => warnings.push(warning);
    process.on("warning", warn);
    try {
      const { api, client } = await pair(provider, [
        implement(Scatter, {
          async run({ into }, call) {
            const one = new Uint8Array(1).fill(7);
            const puts = Array.from({ length: into.byteLength }, (_, offset) =>
              call.put(one, into, { offset }),
            );
            await Promise.all(puts);
            return puts.length;
          },
        }),
      ]);
      const memory = new Uint8Array(100);
      using into = client.expose(memory, { access: "write" });
      expect(await api(Scatter).run({ into })).toBe(100);
      expect([...memory]).toEqual(new Array(100).fill(7));
      // Warnings are emitted on the next tick.
      await new Promise(setImmediate);
      expect(warnings).toEqual([]);
    } finally {
      process.off("warning", warn);
    }
  });
});
