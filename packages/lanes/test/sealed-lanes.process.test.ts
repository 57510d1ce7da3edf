import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Client, Engine, SecurityOptions } from "cinnabar";
import type { SecurityStats } from "cinnabar/inspect";
import { connectLanes, type LanesPeer } from "cinnabar-lanes";
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { isLong } from "../../../test/matrix/long.ts";
import { isOverNet } from "../../../test/matrix/over-net.ts";
import { Child } from "../../../test/processes/support/child.ts";
import { type Fabric, freshUrl, tcpFabric } from "../../../test/processes/support/fabrics.ts";
import { endAllPeers, openEngine, until } from "../../../test/processes/support/peers.ts";
import { Authority } from "../../../test/security/support/authority.ts";
import { secured } from "../../../test/security/support/engines.ts";
import { LaneList } from "../src/lane-list.ts";
import { Guarded } from "./programs/guarded.ts";
import type { GuardedLanesSettings } from "./programs/guarded-lanes.ts";

let ca: Authority;
let other: Authority;
/** The folder of the certificates that the server reads. */
let folder: string;

beforeAll(() => {
  ca = Authority.create("lanes-authority");
  other = Authority.create("other-authority");
  folder = mkdtempSync(join(tmpdir(), "cinnabar-lanes-"));
});
afterAll(() => {
  ca.remove();
  other.remove();
  rmSync(folder, { recursive: true });
});
afterEach(endAllPeers);

function writeCertificates(name = "server.example"): void {
  const { cert, key } = ca.issue(name, { names: `DNS:${name},IP:127.0.0.1` });
  for (const [file, text] of Object.entries({
    "server.pem": cert,
    "server.key": key,
    "ca.pem": ca.cert,
    "crl.pem": ca.crl,
  }))
    writeFileSync(join(folder, file), text);
}

async function startLanes(settings: GuardedLanesSettings): Promise<{ server: Child; url: string }> {
  const server = new Child("guarded-lanes", settings);
  const report = await Promise.race([server.report("listening"), server.report("failed")]);
  if (report.report === "failed") throw new Error(report.message);
  return { server, url: report.urls[0] };
}

interface Caller {
  readonly engine: Engine;
  readonly peer: LanesPeer;
  readonly api: Client<typeof Guarded>;
}

async function caller(url: string, security: SecurityOptions, name?: string): Promise<Caller> {
  const engine = await openEngine({ security });
  const peer = await connectLanes(engine, url, {
    policy: "roundRobin",
    ...(name === undefined ? {} : { name }),
  });
  await until(() => peer.lanes.every(({ state }) => state === "connected"));
  return { engine, peer, api: peer.client(Guarded, { timeoutMs: 30_000 }) };
}

/** Calls fail for this reason from a moment on: a call may come before the first lane has refused to be connected to again. */
async function failsBy(api: Client<typeof Guarded>, reason: string): Promise<void> {
  await until(async () => (await api.whoami().then(() => "", String)).includes(reason));
}

const listeners = (fabric: Fabric) => (fabric === "shm" ? ({ shm: "tls" } as const) : {});

describe.each<Fabric>(isOverNet ? [tcpFabric] : ["tcp", "shm"])(
  "lanes with certificates over %s",
  (fabric) => {
    const start = (more: Partial<GuardedLanesSettings> = {}) =>
      startLanes({ listen: freshUrl(fabric), lanes: 2, folder, ...more });
    const call = (url: string, name: string, target = "server.example") =>
      caller(url, { ...secured(ca, name), ...listeners(fabric) }, target);

    it("know who calls, ask the rules of their module, and show the key to nobody", async () => {
      writeCertificates();
      const { server, url } = await start();
      const [client, admin] = await Promise.all([call(url, "client.example"), call(url, "admin.example")]);
      const answers = await Promise.all([client.api.whoami(), client.api.whoami(), admin.api.whoami()]);
      expect(answers.map(({ who }) => who)).toEqual([
        "dns client.example",
        "dns client.example",
        "dns admin.example",
      ]);
      expect(new Set([answers[0]?.lane, answers[1]?.lane])).toEqual(new Set([0, 1]));
      for (const _ of [0, 1]) {
        await expect(client.api.reset()).rejects.toMatchObject({
          code: "permission_denied",
          notExecuted: true,
        });
        expect(await admin.api.reset()).toMatchObject({ who: "dns admin.example" });
        await expect(client.api.pay()).rejects.toMatchObject({
          code: "permission_denied",
          notExecuted: true,
        });
        const paid = { metadata: { authorization: "Bearer paid" } };
        expect(await client.api.pay(paid)).toMatchObject({ who: "dns client.example" });
        expect(await client.api.workerData()).not.toContain("security");
      }
      // The dispatcher, which judges by the same rules, and each lane.
      const stats = await server.ask<SecurityStats[]>("stats");
      expect(stats.map(({ sessions }) => sessions.map(({ identity }) => identity).sort())).toEqual(
        Array.from({ length: 3 }, () => ["certificate dns admin.example", "certificate dns client.example"]),
      );
      const foreign = other.issue("foreign.example", { names: "DNS:client.example" });
      const stranger = await openEngine({
        security: { tls: { cert: foreign.cert, key: foreign.key, ca: ca.cert }, ...listeners(fabric) },
      });
      await expect(connectLanes(stranger, url, { name: "server.example" })).rejects.toMatchObject({
        code: "unauthenticated",
        message: expect.stringContaining("authority that is not trusted"),
      });
      const plain = await openEngine();
      await expect(connectLanes(plain, url)).rejects.toMatchObject({ code: "unauthenticated" });
    });

    // What a reload does to a session does not depend on the fabric.
    it.skipIf(fabric === "shm" && !isLong)(
      "reload their certificates together, and a lane that starts later has the new ones",
      async () => {
        writeCertificates();
        const { server, url } = await start({ dispatcher: "refer" });
        const gone = await call(url, `gone-${fabric}.example`);
        const staying = await call(url, "staying.example");
        // What cannot be used changes nothing, anywhere.
        writeFileSync(join(folder, "server.key"), other.issue("another").key);
        await expect(server.ask("reload")).rejects.toThrow("OpenSSL cannot use the certificates");
        expect(await gone.api.whoami()).toMatchObject({ who: `dns gone-${fabric}.example` });
        ca.revoke(`gone-${fabric}.example`);
        writeCertificates("server.example");
        await server.ask("reload");
        // The dispatcher's session and those of both lanes.
        await failsBy(gone.api, "the certificate is revoked");
        await until(() => gone.engine.stats().sessions === 0);
        const name = "dns staying.example";
        expect([await staying.api.whoami(), await staying.api.whoami()].map(({ who }) => who)).toEqual([
          name,
          name,
        ]);
        expect(staying.engine.stats().counters.sessionsLost).toBe(0);
        await expect(staying.api.die()).rejects.toMatchObject({ code: "unavailable" });
        const { lane } = await server.report("died");
        await until(() => staying.peer.lanes.every(({ state }) => state === "connected"));
        expect([await staying.api.whoami(), await staying.api.whoami()].map(({ who }) => who)).toEqual([
          name,
          name,
        ]);
        // The revoked one tries every lane again and again, and the new one refuses it too.
        await until(async () => {
          const stats = await server.ask<(SecurityStats | undefined)[]>("stats");
          return (stats[1 + (lane as number)]?.refusals.certificate ?? 0) > 0;
        });
      },
    );
  },
);

it("lanes ask their module for the pre-shared keys of clients, and a reload asks again", async () => {
  const { server, url } = await startLanes({
    listen: freshUrl(tcpFabric),
    lanes: 2,
    rules: "keys",
    dispatcher: "refer",
    security: { psk: {} },
  });
  const key = Buffer.alloc(32, 5);
  const { api } = await caller(url, { psk: { identity: "pair", key } });
  expect([await api.whoami(), await api.whoami()]).toEqual(
    expect.arrayContaining([
      { lane: 0, who: "pair" },
      { lane: 1, who: "pair" },
    ]),
  );
  await server.ask("forget");
  await server.ask("reload");
  await failsBy(api, "the pre-shared keys differ");
});

it("lanes over shm know the user of the kernel, and ask their module", async () => {
  const { url } = await startLanes({ listen: freshUrl("shm"), lanes: 1, rules: "users", security: {} });
  const { api } = await caller(url, {});
  expect(await api.whoami()).toEqual({ lane: 0, who: "process" });
  await expect(api.reset()).rejects.toMatchObject({ code: "permission_denied" });
});

it("a lane at which somebody else listens gets no calls", async () => {
  const serve = (name: string) =>
    openEngine({
      listen: freshUrl(tcpFabric),
      security: secured(ca, name, { names: `DNS:${name},IP:127.0.0.1` }),
    });
  const [dispatcher, own, foreign] = await Promise.all(
    ["server.example", "server.example", "somebody.example"].map(serve),
  );
  const lanes = [own, foreign].map((engine) => {
    const { urls, incarnation } = engine as Engine;
    return { urls, incarnation };
  });
  const list = new LaneList();
  dispatcher?.serve(list.implementation);
  list.post({ urls: dispatcher?.urls ?? [], lanes });
  const client = await openEngine({ security: secured(ca, "client.example") });
  // Both prove the address, so the identity alone tells them apart.
  const peer = await connectLanes(client, dispatcher?.urls[0] as string);
  onTestFinished(() => peer.close());
  const states = peer.lanes.map(({ url, state }) => [url, state]);
  // It is tried again and again, and refused each time.
  expect(states).toEqual([
    [own?.urls[0], "connected"],
    [foreign?.urls[0], expect.stringMatching(/^(lost|connecting)$/)],
  ]);
  expect(client.stats().security.refusals.other_identity).toBeGreaterThanOrEqual(1);
});
