import { Engine, implement, service, unary } from "cinnabar";
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished, vi } from "vitest";
import { z } from "zod";
import { isLong } from "../matrix/long.ts";
import { isOverNet } from "../matrix/over-net.ts";
import { Authority } from "../security/support/authority.ts";
import { Child } from "./support/child.ts";
import { type Fabric, fabrics, freshUrl, tcpFabric } from "./support/fabrics.ts";
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

/** A step and what it is called. The one after a message is also that before the next one of the peer is read. */
type Step = readonly [name: string, dies: object | "judged" | "opened"];

const named: readonly Step[] = [
  ["judged", "judged"],
  ["opened", "opened"],
];
const ofConnector: readonly Step[] = [
  ...named,
  ["hello sent", { after: 1 }],
  ["certificate ready", { before: 2 }],
  ["certificate sent", { after: 2 }],
  ["greeting sent", { after: 3 }],
];
const ofAcceptor: readonly Step[] = [
  ...named,
  ["answer ready", { before: 1 }],
  ["answer sent", { after: 1 }],
  ["welcome sent", { after: 2 }],
];

/** A process takes a second to start. What a fabric tells of its death, it tells at each step. */
const stepsOver = (fabric: string, steps: readonly Step[]) =>
  isLong || fabric === tcpFabric ? steps : steps.slice(0, named.length);

describe.each<Fabric>(isOverNet ? fabrics : ["tcp", "shm"])(
  "a process that dies while a sealed session opens over %s",
  (fabric) => {
    it.each(stepsOver(fabric, ofConnector))(
      "leaves nothing at the acceptor: the connector, once %s",
      async (_, dies) => {
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
        const client = await open({ security: securityOf("other.example"), connectTimeoutMs: 20_000 });
        const peer = await client.connect(url, { name: "server.example" });
        expect(await peer.client(Echo).echo("hi")).toBe("hi");
      },
    );

    it.each(stepsOver(fabric, ofAcceptor))(
      "fails the connect of others: the acceptor, once %s",
      async (_, dies) => {
        const child = new Child("sealed-mortal", {
          listen: freshUrl(fabric),
          security: securityOf("server.example"),
          dies,
        });
        const { urls } = await child.report("listening");
        const client = await open({ security: securityOf("client.example"), connectTimeoutMs: 20_000 });
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
