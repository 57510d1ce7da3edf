import { readFileSync } from "node:fs";
import { Engine } from "cinnabar";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { openEngine as openInPair, pair } from "../matrix/pair.ts";
import { providers } from "../matrix/providers.ts";
import { securedOptions } from "../matrix/secured.ts";
import { Child } from "../processes/support/child.ts";
import { fabrics, freshUrl } from "../processes/support/fabrics.ts";
import { endAllPeers } from "../processes/support/peers.ts";
import { type Connection, cases } from "./cases.ts";
import { TestService, testServer } from "./service.ts";

describe.each(providers)("conformance over $name", (provider) => {
  it.each(cases)("$name", async ({ server, run }) => {
    const { peer, url } = await pair(provider, [testServer()], {
      endsHard: true,
      ...(server === undefined ? {} : { server }),
    });
    const connectAnew = async (): Promise<Connection> => {
      const engine = await openInPair({ heartbeatMs: provider.heartbeatMs }, true);
      const peer = await engine.connect(url, { timeoutMs: provider.connectTimeoutMs });
      return { peer, client: peer.client(TestService), connectAnew };
    };
    await run({ peer, client: peer.client(TestService), connectAnew });
  });
});

// The server is a process of its own, with the defaults of an engine.
describe.each(fabrics)("conformance between processes over %s", (fabric) => {
  // Processes of a busy machine wait for a processor longer than the default bound.
  const heartbeatMs = 20_000;
  let child: Child;
  let url: string;
  const engines: Engine[] = [];

  beforeAll(async () => {
    child = new Child("conformance-server", { listen: freshUrl(fabric), heartbeatMs });
    const { urls } = await child.report("listening");
    url = urls[0] as string;
  });
  afterEach(() => Promise.all(engines.splice(0).map((engine) => engine.close())));
  afterAll(async () => {
    await child.ask("close");
    await endAllPeers();
  });

  it.each(cases.filter(({ server }) => server === undefined))("$name", async ({ run }) => {
    const connectAnew = async (): Promise<Connection> => {
      const engine = await Engine.open({ ...securedOptions, heartbeatMs });
      engines.push(engine);
      const peer = await engine.connect(url, { timeoutMs: heartbeatMs });
      return { peer, client: peer.client(TestService), connectAnew };
    };
    await run(await connectAnew());
  });
});

it("README.md lists each case that is tested, and no other as one", () => {
  const rows = readFileSync(new URL("README.md", import.meta.url), "utf8")
    .split("\n")
    .flatMap((line) => {
      const [, name, applies] = /^\| `?([^|`]+?)`? \| (yes|no) \|/.exec(line) ?? [];
      return name === undefined ? [] : [{ name, applies }];
    });
  const applying = rows.filter(({ applies }) => applies === "yes").map(({ name }) => name);
  expect(applying).toEqual(cases.map(({ name }) => name));
  expect(rows.length).toBeGreaterThan(applying.length);
});
