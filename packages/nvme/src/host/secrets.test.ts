import { Engine } from "cinnabar/standard";
import { afterEach, describe, expect, it, vi } from "vitest";
import { ControllerAuthentication } from "../authentication/controller-side.ts";
import { dhGroupNames } from "../authentication/dh-groups.ts";
import { failure, kind } from "../authentication/messages.ts";
import { hashNames, makeSecret } from "../authentication/secret.ts";
import { bufferOf, Capsules, keyBytes } from "../calls/capsule-service.ts";
import { memoryDevice } from "../device/memory-device.ts";
import type { NvmeAdmittedHost } from "../nvme/admitted-hosts.ts";
import { NvmeTarget, type NvmeTargetOptions } from "../nvme/target.ts";
import { connectFields } from "../tcp/host.test-support.ts";
import { NvmeHost, type NvmeHostOptions, type NvmePath } from "./nvme-host.ts";
import { answerAt } from "./submission-queue.ts";

const nqn = "nqn.2026-11.test:disk";
const hostNqn = "nqn.2026-11.test:host";
const [secret, controllerSecret] = [makeSecret("sha384"), makeSecret("sha512")];
const ends: (() => Promise<unknown>)[] = [];
let names = 0;

afterEach(async () => {
  vi.restoreAllMocks();
  for (const end of ends.splice(0).reverse()) await end();
});

/** A target at TCP and at an engine. */
async function serve(proof: Partial<NvmeAdmittedHost> = {}, options: Partial<NvmeTargetOptions> = {}) {
  const host = { nqn: hostNqn, secret, controllerSecret, ...proof };
  const namespaces = [memoryDevice({ bytes: 1024 * 1024, uuid: "7a4d0c5e-9a3b-4b6a-8a53-3b8d1a1f6a10" })];
  const target = await NvmeTarget.listen({
    subsystems: [{ nqn, namespaces, hosts: [host, "nqn.2026-11.test:open"] }],
    // The largest groups take seconds where others compile, and two sides share the processor.
    ...{ port: 0, handshakeTimeoutMs: 60_000, ...options },
  });
  ends.push(() => target.close());
  const server = await Engine.open({ listen: `mem://secrets-${names++}`, serve: [target.capsules] });
  const engine = await Engine.open();
  ends.push(() => Promise.all([engine.close(), server.close()]));
  const ways: readonly NvmePath[] = [target.address, { engine, url: server.urls[0] as string }];
  return { target, ways };
}

async function connectTo(path: NvmePath, options: Partial<NvmeHostOptions> = {}) {
  const host = await NvmeHost.connect({
    nqn,
    hostNqn,
    paths: [path],
    reconnectMs: 10,
    queues: 2,
    ...options,
  });
  ends.push(() => host.close());
  const data = Buffer.alloc(64 * 1024, 5);
  await host.namespaces[0]?.write(0, data);
  expect(await host.namespaces[0]?.compare(0, data)).toBe(true);
  return host;
}

describe.each([
  ["NVMe/TCP", 0],
  ["calls", 1],
] as const)("a host with a secret, over %s", (_, way) => {
  it.each(hashNames.flatMap((hash) => dhGroupNames.map((dhGroup) => [hash, dhGroup] as const)))(
    "proves it by %s and %s, and has the target prove its own",
    async (hash, dhGroup) => {
      const { ways } = await serve({ hashes: [hash], dhGroups: [dhGroup] });
      await connectTo(ways[way] as NvmePath, { secret, controllerSecret });
    },
  );

  it("proves it alone", async () => {
    const { ways } = await serve({ controllerSecret: undefined as unknown as string });
    await connectTo(ways[way] as NvmePath, { secret });
  });

  it.each<[string, Partial<NvmeHostOptions>, string]>([
    ["without one", {}, "the target wants a secret, and this host has none"],
    [
      "with another one",
      { secret: makeSecret() },
      "the target refused the secret of this host: it has another one",
    ],
    [
      "where the target has another one of its own",
      { secret, controllerSecret: makeSecret() },
      "the target did not prove that it has controllerSecret",
    ],
  ])("is refused, or refuses, %s, and nothing of it stays", async (_, options, why) => {
    const { ways, target } = await serve();
    await expect(connectTo(ways[way] as NvmePath, options)).rejects.toThrow(why);
    await expect.poll(() => target.stats()).toMatchObject({ controllers: 0, inHandshake: 0 });
  });

  it("goes on where the target asks for no secret, unless the target must prove its own", async () => {
    const { ways } = await serve();
    const path = ways[way] as NvmePath;
    await connectTo(path, { hostNqn: "nqn.2026-11.test:open", secret });
    const open = { hostNqn: "nqn.2026-11.test:open", secret, controllerSecret };
    await expect(connectTo(path, open)).rejects.toThrow("the target asks for no secret");
  });
});

describe("a target that breaks the protocol of authentication", () => {
  const next = (change: (message: Buffer) => void, which: number) => {
    const original = ControllerAuthentication.prototype.next;
    vi.spyOn(ControllerAuthentication.prototype, "next").mockImplementation(async function (
      this: ControllerAuthentication,
      maxBytes,
    ) {
      const given = await original.call(this, maxBytes);
      if (given?.message.readUInt16BE(0) === which) change(given.message);
      return given;
    });
  };

  it.each<[string, number, (message: Buffer) => void, number | undefined, string]>([
    [
      "an unknown hash function",
      kind.challenge,
      (message) => message.writeUInt8(9, 8),
      failure.hashUnusable,
      "wrong a challenge",
    ],
    [
      "an unknown group",
      kind.challenge,
      (message) => message.writeUInt8(9, 9),
      failure.groupUnusable,
      "wrong a challenge",
    ],
    [
      "another length of the challenge",
      kind.challenge,
      (message) => message.writeUInt8(48, 6),
      failure.payload,
      "wrong a challenge",
    ],
    [
      "another length of its value",
      kind.challenge,
      (message) => message.writeUInt16LE(4, 10),
      failure.payload,
      "wrong a challenge",
    ],
    [
      "a value that is none",
      kind.challenge,
      (message) => message.fill(0, 48),
      failure.payload,
      "wrong a value",
    ],
    [
      "another transaction",
      kind.challenge,
      (message) => message.writeUInt16LE(message.readUInt16LE(4) ^ 1, 4),
      failure.message,
      "wrong a message",
    ],
    [
      "another message",
      kind.success1,
      (message) => message.writeUInt8(1, 1),
      failure.message,
      "wrong a message",
    ],
    ["no response", kind.success1, (message) => message.writeUInt8(0, 8), failure.failed, "did not prove"],
    [
      "a wrong response",
      kind.success1,
      (message) => message.writeUInt8((message[20] ?? 0) ^ 1, 20),
      failure.failed,
      "did not prove",
    ],
    [
      "an explanation that nobody knows",
      kind.challenge,
      (message) => message.fill(Buffer.from([0, 0xf1]), 0, 2).writeUInt8(99, 7),
      undefined,
      "explanation 99",
    ],
  ])("by %s is given up", async (_, which, change, why, error) => {
    const { ways } = await serve({ hashes: ["sha256"], dhGroups: ["ffdhe2048"] });
    next(change, which);
    const taken = vi.spyOn(ControllerAuthentication.prototype, "take");
    const connecting = connectTo(ways[0] as NvmePath, { secret, controllerSecret, timeoutMs: 2000 });
    await expect(connecting).rejects.toThrow(error);
    const last = taken.mock.lastCall?.[0];
    if (why !== undefined) expect([last?.readUInt16BE(0), last?.[7]]).toEqual([kind.failure2, why]);
  });
});

it("a host whose target comes back proves its secret again, on every queue", async () => {
  const { ways, target } = await serve();
  const host = await connectTo(ways[0] as NvmePath, { secret, controllerSecret });
  const { port } = target.address;
  await target.close();
  const taken = vi.spyOn(ControllerAuthentication.prototype, "take");
  await serve({}, { port });
  await host.namespaces[0]?.write(0, Buffer.alloc(4096, 1));
  // Negotiation, reply and success, on the admin queue and on two others.
  expect(await Promise.all(taken.mock.results.map(({ value }) => value))).toEqual(Array(9).fill(true));
});

it("a host in calls that proves nothing loses its queue after the time for that", async () => {
  const { ways, target } = await serve({}, { handshakeTimeoutMs: 100 });
  const { engine, url } = ways[1] as Extract<NvmePath, { url: string }>;
  const { entry, data } = connectFields({ host: hostNqn, nqn });
  const peer = await engine.connect(url);
  const items = peer.client(Capsules).open(Buffer.concat([Buffer.alloc(keyBytes), entry, data]));
  const answers: Uint8Array[] = [];
  for await (const answer of items) answers.push(answer);
  expect(answers.map((answer) => answerAt(bufferOf(answer)).status)).toEqual([0]);
  await expect.poll(() => target.stats().controllers).toBe(0);
});

describe("the options of a host", () => {
  it.each<[Partial<NvmeHostOptions>, string]>([
    [{ controllerSecret }, "controllerSecret needs secret"],
    [{ secret: "password" }, "secret must be a secret"],
    [{ secret, hostNqn: undefined as unknown as string }, "secret needs hostNqn"],
  ])("%j are refused", async (options, why) => {
    const paths = [{ host: "127.0.0.1", port: 1 }];
    const connecting = NvmeHost.connect({ nqn, hostNqn, paths, ...options });
    await expect(connecting).rejects.toThrow(why);
    await expect(connecting).rejects.not.toThrow("password");
  });
});
