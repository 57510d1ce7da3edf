import { Engine, implement, service, unary } from "cinnabar";
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished, vi } from "vitest";
import { z } from "zod";
import { Authority } from "../security/support/authority.ts";
import { Child } from "./support/child.ts";
import { freshUrl } from "./support/fabrics.ts";
import { endAllPeers } from "./support/peers.ts";

const Echo = service("echo.v1", { echo: unary({ input: z.string(), output: z.string() }) });
const echo = implement(Echo, { echo: async (text) => text });
let ca: Authority;

beforeAll(() => {
  ca = Authority.create("ca");
});

afterAll(() => ca.remove());
afterEach(endAllPeers);

function securityOf(name: string) {
  const { cert, key } = ca.issue(name, { names: `DNS:${name}` });
  return { tls: { cert, key, ca: ca.cert }, shm: "tls" as const };
}

async function open(options: Parameters<typeof Engine.open>[0]): Promise<Engine> {
  const engine = await Engine.open(options);
  onTestFinished(() => engine.close());
  return engine;
}

/** A generous bound: a silent peer is given up after five bounds of the heartbeat. */
const settles = { timeout: 20_000 };

describe.each(["tcp", "shm"] as const)(
  "a process that dies while a sealed session opens over %s",
  (fabric) => {
    it.each(["judged", "opened"] as const)(
      "leaves nothing at the acceptor: the connector, once %s",
      async (dies) => {
        const server = await open({
          listen: freshUrl(fabric),
          serve: [echo],
          security: securityOf("server.example"),
        });
        const url = server.urls[0] as string;
        const child = new Child("sealed-mortal", { security: securityOf("client.example"), dies });
        await child.report("listening");
        child.ask("reach", url).catch(() => undefined);
        expect(await child.ended).toBe("SIGKILL");
        await vi.waitFor(() => {
          expect(server.stats().security.openHandshakes).toBe(0);
          expect(server.stats().sessions).toBe(0);
        }, settles);
        const client = await open({ security: securityOf("other.example") });
        const peer = await client.connect(url, { name: "server.example" });
        expect(await peer.client(Echo).echo("hi")).toBe("hi");
      },
    );

    it.each(["judged", "opened"] as const)(
      "fails the connect of others: the acceptor, once %s",
      async (dies) => {
        const child = new Child("sealed-mortal", {
          listen: freshUrl(fabric),
          security: securityOf("server.example"),
          dies,
        });
        const { urls } = await child.report("listening");
        const client = await open({ security: securityOf("client.example"), connectTimeoutMs: 3000 });
        const connecting = client.connect((urls as string[])[0] as string, { name: "server.example" });
        // It may have been welcomed before the acceptor has taken its greeting.
        const outcome = await connecting.then(
          (peer) =>
            peer
              .client(Echo)
              .echo("hi")
              .catch((error: unknown) => error),
          (error: unknown) => error,
        );
        expect(outcome).toMatchObject({ name: "RpcError" });
        expect(await child.ended).toBe("SIGKILL");
        await vi.waitFor(() => expect(client.stats().sessions).toBe(0), settles);
      },
    );
  },
);
