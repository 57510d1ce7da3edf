import { bulk, implement, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { failure } from "../matrix/wait.ts";

const Put = service("put.v1", {
  run: unary({ input: z.object({ into: bulk("write") }), output: z.number() }),
});

// A put from detached memory moved 0 bytes and succeeded.
describe.each(transports)("a put from detached memory over $name", (provider) => {
  it("fails instead of moving nothing", async () => {
    const { api, client } = await pair(provider, [
      implement(Put, {
        run({ into }, call) {
          const local = new Uint8Array(into.byteLength);
          structuredClone(local.buffer, { transfer: [local.buffer] });
          return call.put(local, into);
        },
      }),
    ]);
    using into = client.expose(new Uint8Array(16), { access: "write" });
    expect(await failure(api(Put).run({ into }))).toMatchObject({ code: "failed_precondition" });
  });
});
