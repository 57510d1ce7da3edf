import { bulk, implement, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { failure } from "../matrix/wait.ts";

const Return = service("return.v1", {
  run: unary({ input: z.object({ into: bulk("write") }), output: z.unknown() }),
});

// The handle was sent field by field: its key, and the call's record with its neighbours on the deadline wheel.
describe.each(transports)("a handle on the caller's memory in an output, over $name", (provider) => {
  it("is refused, and nothing of it is sent", async () => {
    const { api, client } = await pair(provider, [implement(Return, { run: ({ into }) => ({ into }) })]);
    using into = client.expose(new Uint8Array(16), { access: "write" });
    const error = await failure(api(Return).run({ into }));
    expect(error).toMatchObject({ code: "internal", origin: "remote" });
    expect(error.message).toContain("a region cannot be sent here");
  });
});
