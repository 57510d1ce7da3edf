import { afterEach, describe, expect, it } from "vitest";
import { Trial } from "./programs/trial.ts";
import { Child } from "./support/child.ts";
import { fabrics, freshUrl } from "./support/fabrics.ts";
import { endAllPeers, openEngine } from "./support/peers.ts";

afterEach(endAllPeers);

/** A shape that came so often gets code, where that is allowed. */
const often = 200;

describe.each(fabrics)("a server that may generate no code from strings, over %s", (fabric) => {
  it("answers as others do, however often values of one shape come", async () => {
    const nodeOptions = ["--disallow-code-generation-from-strings"];
    const server = new Child("server", { listen: freshUrl(fabric) }, { nodeOptions });
    const { urls, life } = await server.report("listening");
    const engine = await openEngine({});
    const trial = (await engine.connect(urls[0])).client(Trial, { timeoutMs: 60_000 });
    for (let i = 0; i < often; i++)
      expect(await trial.echo({ token: `token ${i}` })).toEqual({ token: `token ${i}`, life });
  });
});
