import { networkInterfaces } from "node:os";
import { bulk, bytes, implement, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { openEngine } from "../matrix/pair.ts";
import { failure } from "../matrix/wait.ts";

const Both = service("both.v1", {
  echo: unary({ input: bytes(), output: bytes() }),
  fill: unary({ input: z.object({ into: bulk("write") }), output: z.number() }),
});
const both = implement(Both, {
  echo: (input) => input,
  fill: ({ into }, call) => call.put(new Uint8Array(into.byteLength).fill(7), into),
});

const hasSix = Object.values(networkInterfaces()).some((all) =>
  all?.some(({ address }) => address === "::1"),
);
const portOf = (url: string | undefined) => url?.slice(url.lastIndexOf(":") + 1);

describe("an engine that listens over tcp", () => {
  it("says who else may have its port", async () => {
    const { urls } = await openEngine({ listen: "tcp://127.0.0.1:0" });
    expect(await failure(openEngine({ listen: urls[0] as string }))).toMatchObject({
      code: "already_exists",
      retryable: false,
      message: expect.stringMatching(
        /the address is in use.*Cluster workers and threads cannot share a port/,
      ),
      fabric: { name: "EADDRINUSE" },
    });
  });

  it("says that an address is another machine's", async () => {
    // An address of a network for documentation (RFC 5737), which nobody has.
    expect(await failure(openEngine({ listen: "tcp://192.0.2.1:0" }))).toMatchObject({
      code: "invalid_argument",
      message: expect.stringContaining("this machine does not have the address"),
      fabric: { name: "EADDRNOTAVAIL" },
    });
  });

  it.each(["tcp://0.0.0.0:7400", "tcp://[::]:7400", "verbs://0.0.0.0:7400"])(
    "refuses to connect to %s, which is wrong usage",
    async (url) => {
      const engine = await openEngine();
      const error = await engine.connect(url).catch((reason: unknown) => reason);
      expect(error).toBeInstanceOf(TypeError);
      expect((error as TypeError).message).toMatch(
        /can be listened on, not connected to; connect to an address/,
      );
    },
  );

  it.runIf(hasSix)("at [::] serves peers of both versions of IP", async () => {
    const { urls } = await openEngine({ listen: "tcp://[::]:0", serve: [both] });
    for (const host of ["127.0.0.1", "[::1]"]) {
      const engine = await openEngine();
      const client = (await engine.connect(`tcp://${host}:${portOf(urls[0])}`)).client(Both);
      // Beyond a message, so that the server pulls, and writes on its own account.
      const long = new Uint8Array(200_000).fill(3);
      expect(await client.echo(long)).toEqual(long);
      const view = new Uint8Array(1000);
      using into = engine.expose(view, { access: "write" });
      expect(await client.fill({ into })).toBe(1000);
      expect(view.every((byte) => byte === 7)).toBe(true);
    }
  });
});
