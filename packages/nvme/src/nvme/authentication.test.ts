import { afterEach, describe, expect, it, vi } from "vitest";
import { DhExchange, type NvmeDhGroup, primeOf } from "../authentication/dh-groups.ts";
import {
  type ChallengeFields,
  failure,
  failureMessage,
  kind,
  negotiateMessage,
  parseChallenge,
  parseSuccess1,
  replyMessage,
  success2Message,
} from "../authentication/messages.ts";
import { type Challenge, controllerResponse, hostResponse } from "../authentication/responses.ts";
import { digestBytes, hashNames, makeSecret, parseSecret, type Secret } from "../authentication/secret.ts";
import { memoryDevice } from "../device/memory-device.ts";
import { blocksOf, type CommandFields, type ConnectFields, HostQueue } from "../tcp/host.test-support.ts";
import type { NvmeAdmittedHost } from "./admitted-hosts.ts";
import { admin, fabrics, fabricsOpcode, io, sgl } from "./command.ts";
import { NvmeTarget, type NvmeTargetOptions } from "./target.ts";

const nqn = "nqn.2026-11.test:disk";
const hostNqn = "nqn.2026-11.test:host";
const ends = { hostNqn, subsystemNqn: nqn };
const secret = makeSecret();
const controllerSecret = makeSecret("sha512");
const parsed = (text: string) => parseSecret(text) as Secret;
const none = { header: false, data: false };
const offer = { hashes: hashNames, dhGroups: ["null", "ffdhe2048"] as const };
const id = 0x1234;
const targets: NvmeTarget[] = [];

afterEach(async () => {
  for (const target of targets.splice(0)) await target.close();
});

async function serve(
  proof: Partial<NvmeAdmittedHost> = {},
  limits: Partial<NvmeTargetOptions> = {},
  device = memoryDevice({ bytes: 1024 * 1024 }),
) {
  const hosts = [{ nqn: hostNqn, secret, controllerSecret, ...proof }, "nqn.2026-11.test:open"];
  const target = await NvmeTarget.listen({
    subsystems: [{ nqn, namespaces: [device], hosts }],
    port: 0,
    // The largest groups take seconds where others compile.
    handshakeTimeoutMs: 60_000,
    ...limits,
  });
  targets.push(target);
  return { target, port: target.address.port };
}

/** What a command of authentication has in the words from CDW10 on. */
const words = (bytes: number, protocol = 0xe901_0100) => [protocol, bytes];

/** A queue of a host that is connected, and has proved nothing. */
class Unproven {
  readonly queue: HostQueue;
  readonly controllerId: number;

  constructor(queue: HostQueue, controllerId: number) {
    this.queue = queue;
    this.controllerId = controllerId;
  }

  static async open(port: number, fields: Partial<ConnectFields> = {}): Promise<Unproven> {
    const queue = await HostQueue.open(port, none);
    await queue.greet();
    const { status, result } = await queue.connect(fields);
    expect(status).toBe(0);
    // The host must authenticate.
    expect(result >> 16n).toBe(2n);
    return new Unproven(queue, Number(result & 0xffffn));
  }

  async send(message: Buffer, fields: Partial<CommandFields> = {}): Promise<number> {
    const command = {
      ...{ opcode: fabricsOpcode, nsid: fabrics.authenticationSend, words: words(message.length) },
      ...{ bytes: message.length, sglKind: sgl.inCapsule },
    };
    return (await this.queue.command({ ...command, ...fields }, { inCapsule: message })).status;
  }

  async get(bytes = 4096) {
    const command = {
      opcode: fabricsOpcode,
      nsid: fabrics.authenticationReceive,
      words: words(bytes),
      bytes,
    };
    return this.queue.command(command);
  }

  /** The explanation of the failure that the target says, after which it ends the connection. */
  async failure(): Promise<number> {
    const { status, data } = await this.get();
    expect([status, data.readUInt16BE(0), data[6]]).toEqual([0, kind.failure1, 1]);
    await this.queue.ended();
    return data.readUInt8(7);
  }

  async challenged(dhGroup: NvmeDhGroup = "null"): Promise<ChallengeFields> {
    expect(await this.send(negotiateMessage(id, { ...offer, dhGroups: [dhGroup] }))).toBe(0);
    const { data } = await this.get();
    expect([data.readUInt16BE(0), data.readUInt16LE(4)]).toEqual([kind.challenge, id]);
    return parseChallenge(data) as ChallengeFields;
  }

  /** The reply to a challenge, by the right secret. */
  reply({ hash, challenge }: ChallengeFields, ask?: Challenge): Buffer {
    const response = hostResponse({ id, hash, shared: undefined, ...ends }, parsed(secret), challenge);
    return replyMessage(id, { response, challenge: ask, dhValue: Buffer.alloc(0) });
  }

  async prove(): Promise<void> {
    expect(await this.send(this.reply(await this.challenged()))).toBe(0);
    expect((await this.get()).data.readUInt16BE(0)).toBe(kind.success1);
  }
}

/** An admin queue that is proved, whose controller is enabled. */
async function associate(port: number): Promise<Unproven> {
  const control = await Unproven.open(port);
  await control.prove();
  expect((await control.queue.setProperty(0x14, 0x460001)).status).toBe(0);
  return control;
}

describe("a queue whose host must prove a secret", () => {
  it.each(["null", "ffdhe2048", "ffdhe8192"] as const)(
    "takes commands afterwards, by %s",
    async (dhGroup) => {
      const { port } = await serve({ dhGroups: [dhGroup] });
      const control = await Unproven.open(port);
      const { hash, challenge, dhValue } = await control.challenged(dhGroup);
      const exchange = dhGroup === "null" ? undefined : await DhExchange.begin(dhGroup, hostNqn);
      const transaction = { id, hash, shared: await exchange?.secretWith(dhValue), ...ends };
      const response = hostResponse(transaction, parsed(secret), challenge);
      const ask = { bytes: Buffer.alloc(32, 3), sequence: 77 };
      const reply = { response, challenge: ask, dhValue: exchange?.value ?? Buffer.alloc(0) };
      expect(await control.send(replyMessage(id, reply))).toBe(0);
      const success = (await control.get()).data;
      expect(parseSuccess1(success, hash)).toEqual(
        controllerResponse(transaction, parsed(controllerSecret), ask),
      );
      // Both sides must accept.
      expect((await control.queue.getProperty(0x1c)).status).toBe(0x191);
      expect(await control.send(success2Message(id))).toBe(0);
      expect((await control.queue.getProperty(0x1c)).status).toBe(0);
    },
  );

  it("takes no other command before, on the admin queue and on I/O queues", async () => {
    const device = memoryDevice({ bytes: 1024 * 1024 });
    const write = vi.spyOn(device, "write");
    const { port } = await serve({}, {}, device);
    const control = await Unproven.open(port);
    const { queue } = control;
    const refused = async (answer: Promise<{ status: number; doNotRetry: boolean }>) =>
      expect(await answer).toMatchObject({ status: 0x191, doNotRetry: true });
    await refused(queue.getProperty(0x1c));
    await refused(queue.setProperty(0x14, 0x460001));
    await refused(queue.identify(1));
    await refused(queue.command({ opcode: admin.keepAlive }));
    await refused(queue.command({ opcode: admin.asyncEvent }));
    await refused(queue.command({ opcode: fabricsOpcode, nsid: fabrics.connect }));
    // The run of the protocol is where it was.
    await control.prove();
    await queue.setProperty(0x14, 0x460001);
    const ioQueue = await Unproven.open(port, { queueId: 1, controllerId: control.controllerId });
    await refused(ioQueue.queue.read(0, 4096));
    await refused(ioQueue.queue.write(0, Buffer.alloc(4096, 1)));
    await refused(ioQueue.queue.write(0, Buffer.alloc(64 * 1024, 1)));
    const half = { nsid: 1, words: blocksOf(0, 1), bytes: 4096, sglKind: sgl.inCapsule };
    ioQueue.queue.sendCommand({ ...half, opcode: io.compare, flags: 0x41, id: 1 }, Buffer.alloc(4096));
    ioQueue.queue.sendCommand({ ...half, opcode: io.write, flags: 0x42, id: 2 }, Buffer.alloc(4096, 1));
    await refused(ioQueue.queue.answer(1));
    await refused(ioQueue.queue.answer(2));
    expect(write).not.toHaveBeenCalled();
    await ioQueue.prove();
    expect((await ioQueue.queue.write(0, Buffer.alloc(4096, 1))).status).toBe(0);
  });

  it("may be proved again at any time, and ends where that fails", async () => {
    const { port } = await serve();
    const control = await associate(port);
    await control.prove();
    const reply = control.reply(await control.challenged());
    reply[16] = (reply[16] as number) ^ 1;
    // The queue stays usable until then.
    expect((await control.queue.getProperty(0x1c)).status).toBe(0);
    expect(await control.send(reply)).toBe(0);
    expect((await control.queue.getProperty(0x1c)).status).toBe(0x191);
    expect(await control.failure()).toBe(failure.failed);
  });

  it("asks nothing of a host without a secret beside it", async () => {
    const { port } = await serve();
    const queue = await HostQueue.open(port, none);
    await queue.greet();
    const { result } = await queue.connect({ host: "nqn.2026-11.test:open" });
    expect(result >> 16n).toBe(0n);
    expect((await queue.setProperty(0x14, 0x460001)).status).toBe(0);
    const message = negotiateMessage(id, offer);
    const command = { opcode: fabricsOpcode, nsid: fabrics.authenticationSend, words: words(72), bytes: 72 };
    expect((await queue.command({ ...command, sglKind: sgl.inCapsule }, { inCapsule: message })).status).toBe(
      2,
    );
  });
});

const changed = (message: Buffer, at: number, value: number) => {
  const copy = Buffer.from(message);
  copy.writeUInt8(value, at);
  return copy;
};
const negotiate = negotiateMessage(id, offer);
const longer = (message: Buffer) => Buffer.concat([message, Buffer.alloc(4)]);
const shorter = (message: Buffer) => message.subarray(0, -4);

describe("a message that is wrong gets the failure that says why, and the connection ends, and no other", () => {
  const dhProof = { dhGroups: ["ffdhe2048"] as const };
  const dhValueOf = (last: number, fill = 0) => changed(Buffer.alloc(256, fill), 255, last);
  const largest = changed(primeOf("ffdhe2048"), 255, 0xfe);
  const replyWith = (dhValue: Buffer, response = Buffer.alloc(32) as Buffer) =>
    replyMessage(id, { response, challenge: undefined, dhValue });
  /** Sends what comes behind the challenge. */
  const behind =
    (change: (reply: Buffer) => Buffer, dhGroup: NvmeDhGroup = "null") =>
    async (one: Unproven) => {
      const challenge = await one.challenged(dhGroup);
      expect(await one.send(change(one.reply(challenge)))).toBe(0);
    };
  const first = (message: Buffer) => async (one: Unproven) => expect(await one.send(message)).toBe(0);

  it.each<[string, number, (one: Unproven) => Promise<void>, Partial<NvmeAdmittedHost>?]>([
    ["a message to get before any was sent", failure.message, async () => {}],
    ["a reply first", failure.message, first(replyWith(Buffer.alloc(0)))],
    ["a success first", failure.message, first(success2Message(id))],
    ["a message of the controller", failure.message, first(changed(success2Message(id), 1, 3))],
    ["an unknown message", failure.message, first(changed(negotiate, 1, 9))],
    ["an unknown kind of messages", failure.message, first(changed(negotiate, 0, 7))],
    ["a message that is too short to have a kind", failure.payload, first(Buffer.alloc(7))],
    ["an offer that is too short", failure.payload, first(shorter(negotiate))],
    ["an offer that is too long", failure.payload, first(longer(negotiate))],
    ["an offer of no protocol", failure.payload, first(changed(negotiate, 7, 0).subarray(0, 8))],
    ["an offer of another protocol", failure.protocolUnusable, first(changed(negotiate, 8, 2))],
    ["an offer with a secure channel", failure.channelMismatch, first(changed(negotiate, 6, 2))],
    ["an offer of more hash functions than have room", failure.payload, first(changed(negotiate, 10, 31))],
    ["an offer of no group", failure.payload, first(changed(negotiate, 11, 0))],
    ["unknown hash functions", failure.hashUnusable, first(changed(changed(negotiate, 12, 4), 10, 1))],
    ["the hash function 0", failure.hashUnusable, first(changed(changed(negotiate, 12, 0), 10, 1))],
    ["unknown groups", failure.groupUnusable, first(changed(changed(negotiate, 42, 6), 11, 1))],
    [
      "a hash function that is not admitted",
      failure.hashUnusable,
      first(changed(negotiate, 10, 1)),
      { hashes: ["sha512"] },
    ],
    ["a group that is not admitted", failure.groupUnusable, first(changed(negotiate, 11, 1)), dhProof],
    [
      "a second offer",
      failure.message,
      async (one) => {
        await one.challenged();
        await one.send(negotiate);
      },
    ],
    [
      "an offer on top of an offer",
      failure.message,
      async (one) => {
        await one.send(negotiate);
        await one.send(negotiate);
      },
    ],
    ["a success instead of a reply", failure.message, behind(() => success2Message(id))],
    ["another transaction", failure.payload, behind((reply) => changed(reply, 4, 0x35))],
    ["a reply that is too short", failure.payload, behind(shorter)],
    ["a reply that is too long", failure.payload, behind(longer)],
    ["a reply of the head alone", failure.payload, behind((reply) => reply.subarray(0, 8))],
    ["a response of another length", failure.payload, behind((reply) => changed(reply, 6, 48))],
    ["a value of a group that is not", failure.payload, behind((reply) => changed(reply, 10, 4))],
    ["a wrong response", failure.failed, behind((reply) => changed(reply, 17, (reply[17] as number) ^ 1))],
    ["the value 0", failure.payload, behind(() => replyWith(dhValueOf(0)), "ffdhe2048"), dhProof],
    ["the value 1", failure.payload, behind(() => replyWith(dhValueOf(1)), "ffdhe2048"), dhProof],
    ["the prime less one", failure.payload, behind(() => replyWith(largest), "ffdhe2048"), dhProof],
    [
      "a value above the prime",
      failure.payload,
      behind(() => replyWith(dhValueOf(255, 255)), "ffdhe2048"),
      dhProof,
    ],
    [
      "a value that is missing",
      failure.payload,
      behind(() => replyWith(Buffer.alloc(0)), "ffdhe2048"),
      dhProof,
    ],
    [
      "a response without the exchange",
      failure.failed,
      behind((reply) => replyWith(dhValueOf(2), reply.subarray(16, 48)), "ffdhe2048"),
      dhProof,
    ],
    [
      "a challenge to a controller without a secret",
      failure.failed,
      async (one) => {
        await one.send(one.reply(await one.challenged(), { bytes: Buffer.alloc(32, 1), sequence: 1 }));
      },
      { controllerSecret: undefined as unknown as string },
    ],
    [
      "a success that is too short",
      failure.payload,
      async (one) => {
        await one.send(one.reply(await one.challenged(), { bytes: Buffer.alloc(32, 1), sequence: 1 }));
        await one.get();
        await one.send(shorter(success2Message(id)));
      },
    ],
    [
      "a reply that was right another time",
      failure.failed,
      async (one) => {
        const recorded = one.reply(await one.challenged());
        const other = await Unproven.open(one.queue.socket.remotePort as number);
        await other.challenged();
        expect(await other.send(recorded)).toBe(0);
        expect(await other.failure()).toBe(failure.failed);
        // The same message is refused the second time on one queue.
        expect(await one.send(recorded)).toBe(0);
        await one.get();
        await one.challenged();
        await one.send(recorded);
      },
    ],
  ])("%s", async (_, why, send, proof = {}) => {
    const { port, target } = await serve(proof);
    const beside = proof.hashes || proof.dhGroups ? undefined : await associate(port);
    const one = await Unproven.open(port);
    await send(one);
    expect(await one.failure()).toBe(why);
    await expect.poll(() => target.stats().controllers).toBe(beside === undefined ? 0 : 1);
    if (beside !== undefined) expect((await beside.queue.getProperty(0x1c)).result).toBe(1n);
  });

  it("the host's own failure ends it, too", async () => {
    const { port, target } = await serve();
    const one = await Unproven.open(port);
    await one.challenged();
    expect(await one.send(failureMessage(kind.failure2, id, failure.failed))).toBe(0);
    await one.queue.ended();
    await expect.poll(() => target.stats().controllers).toBe(0);
  });
});

describe("a command that is wrong gets its status, and the queue waits on", () => {
  it.each<[string, number, (one: Unproven) => Promise<number>]>([
    ["another security protocol", 0x02, (one) => one.send(negotiate, { words: words(72, 0xea01_0100) })],
    ["another SPSP0", 0x02, (one) => one.send(negotiate, { words: words(72, 0xe901_0200) })],
    ["another SPSP1", 0x02, (one) => one.send(negotiate, { words: words(72, 0xe902_0100) })],
    ["no length", 0x02, (one) => one.send(negotiate, { words: words(0) })],
    ["a length beyond all messages", 0x02, (one) => one.send(negotiate, { words: words(2 ** 31) })],
    ["another length than the data", 0x0f, (one) => one.send(negotiate, { words: words(80) })],
    ["too much room asked for", 0x02, async (one) => (await one.get(8196)).status],
    ["too little room for the message", 0x02, async (one) => (await one.get(7)).status],
  ])("%s", async (_, status, send) => {
    const { port } = await serve();
    const one = await Unproven.open(port);
    expect(await send(one)).toBe(status);
    await one.prove();
  });

  it("too little room for a challenge with a value of a group costs no exchange", async () => {
    const begin = vi.spyOn(DhExchange, "begin");
    const { port } = await serve({ dhGroups: ["ffdhe2048"] });
    const one = await Unproven.open(port);
    await one.send(negotiate);
    expect((await one.get(16 + 32 + 255)).status).toBe(0x02);
    expect(begin).not.toHaveBeenCalled();
    expect((await one.get(16 + 32 + 256)).status).toBe(0);
    expect(begin).toHaveBeenCalledTimes(1);
  });

  it("too little room for a challenge changes nothing", async () => {
    const { port } = await serve();
    const one = await Unproven.open(port);
    await one.send(negotiateMessage(id, { ...offer, dhGroups: ["null"] }));
    expect((await one.get(47)).status).toBe(0x02);
    const { status, data } = await one.get(48);
    expect([status, data.readUInt16BE(0)]).toEqual([0, kind.challenge]);
    await one.send(one.reply(parseChallenge(data) as ChallengeFields));
    expect((await one.get(16)).data.readUInt16BE(0)).toBe(kind.success1);
    expect((await one.queue.getProperty(0x1c)).status).toBe(0);
  });
});

describe("what a host gets", () => {
  it("is another challenge each time, with the next number", async () => {
    const { port } = await serve();
    const challenges = await Promise.all([1, 2].map(async () => (await Unproven.open(port)).challenged()));
    const [first, second] = challenges.map(({ challenge }) => challenge);
    expect(first?.bytes.equals(second?.bytes as Buffer)).toBe(false);
    expect(Math.abs((first?.sequence ?? 0) - (second?.sequence ?? 0))).toBe(1);
  });

  it("is nothing of what was in the memory before", async () => {
    const { port } = await serve();
    const { controllerId } = await associate(port);
    const one = await Unproven.open(port, { queueId: 1, controllerId });
    await one.prove();
    await one.queue.write(0, Buffer.alloc(4096, 0xab));
    expect((await one.queue.read(0, 4096)).data.equals(Buffer.alloc(4096, 0xab))).toBe(true);
    await one.send(negotiateMessage(id, { ...offer, dhGroups: ["null"] }));
    const { data } = await one.get(4096);
    expect(data.subarray(48).equals(Buffer.alloc(4048))).toBe(true);
  });
});

describe("a host that proves nothing takes nothing from others", () => {
  it("nor a connection, nor for long", async () => {
    const { port, target } = await serve(
      {},
      { maxConnections: 2, maxHandshakes: 3, handshakeTimeoutMs: 300 },
    );
    const silent = await Promise.all(Array.from({ length: 3 }, () => Unproven.open(port)));
    expect(target.stats()).toMatchObject({ open: 0, inHandshake: 3 });
    // The oldest of them makes room.
    const control = await Unproven.open(port);
    await control.prove();
    expect((await control.queue.getProperty(0x1c)).status).toBe(0);
    await Promise.all(silent.map(({ queue }) => queue.ended()));
    expect(target.stats()).toMatchObject({ open: 1, inHandshake: 0, refused: 3 });
    await expect.poll(() => target.stats().controllers).toBe(1);
    expect((await control.queue.getProperty(0x1c)).status).toBe(0);
  });

  it("nor the number of a queue", async () => {
    const { port, target } = await serve();
    const control = await associate(port);
    const { controllerId } = control;
    const stranger = await Unproven.open(port, { queueId: 1, controllerId });
    const ioQueue = await Unproven.open(port, { queueId: 1, controllerId });
    await ioQueue.prove();
    expect((await ioQueue.queue.read(0, 4096)).status).toBe(0);
    // Had it been the same host, the number would be taken.
    await stranger.send(stranger.reply(await stranger.challenged()));
    await stranger.get().catch(() => {});
    await stranger.queue.ended();
    expect((await ioQueue.queue.read(0, 4096)).status).toBe(0);
    // The end of the controller ends those as well.
    const other = await Unproven.open(port, { queueId: 2, controllerId });
    control.queue.socket.destroy();
    await Promise.all([other.queue.ended(), ioQueue.queue.ended()]);
    await expect.poll(() => target.stats().controllers).toBe(0);
  });

  it("nor the loop of the target, by the largest group", async () => {
    // An exchange takes seconds on a busy machine, since its thread rests three quarters of the time.
    const { port } = await serve({ dhGroups: ["ffdhe8192"] }, { handshakeTimeoutMs: 120_000 });
    const open = { host: "nqn.2026-11.test:open", hostId: 2 };
    const reader = await HostQueue.open(port, none);
    await reader.greet();
    const controllerId = Number((await reader.connect(open)).result);
    await reader.setProperty(0x14, 0x460001);
    const queue = await HostQueue.open(port, none);
    await queue.greet();
    expect((await queue.connect({ ...open, queueId: 1, controllerId })).status).toBe(0);
    let exchanges = 0;
    const attack = async () => {
      const stranger = await Unproven.open(port);
      const { hash } = await stranger.challenged("ffdhe8192");
      // The square of the base is a value of the group: another one is refused before its power is made.
      const dhValue = Buffer.alloc(1024);
      dhValue[1023] = 4;
      const response = Buffer.alloc(digestBytes[hash]);
      await stranger.send(replyMessage(id, { response, challenge: undefined, dhValue }));
      expect(await stranger.failure()).toBe(failure.failed);
      exchanges++;
    };
    const attacks = Array.from({ length: 4 }, async () => {
      while (exchanges < 3) await attack();
    });
    let reads = 0;
    while (exchanges < 3) {
      expect((await queue.read(0, 4096)).status).toBe(0);
      reads++;
    }
    await Promise.all(attacks);
    // On the loop, each of the two powers of an exchange takes as long as many reads.
    expect(reads).toBeGreaterThan(20 * exchanges);
  });

  it("nor the places that are kept for its I/O queues", async () => {
    const { port, target } = await serve({}, { maxConnections: 3 });
    const control = await associate(port);
    const { controllerId } = control;
    const asked = await control.queue.command({ opcode: admin.setFeatures, words: [7, 7 * 65_537] });
    expect(asked.result).toBe(BigInt(65_537));
    for (const queueId of [1, 2, 1, 2]) await Unproven.open(port, { queueId, controllerId });
    for (const queueId of [1, 2]) {
      const ioQueue = await Unproven.open(port, { queueId, controllerId });
      await ioQueue.prove();
      expect((await ioQueue.queue.read(0, 4096)).status).toBe(0);
    }
    expect(target.stats()).toMatchObject({ open: 3, inHandshake: 4, ioQueues: 2 });
    // The next one is refused before it proves anything.
    const late = await HostQueue.open(port, none);
    await late.greet();
    expect((await late.connect({ queueId: 3, controllerId })).status).toBe(0x181);
  });

  it("nor memory: it has four commands open at most", async () => {
    const { port } = await serve();
    const one = await Unproven.open(port, { entries: 128 });
    const message = {
      opcode: fabricsOpcode,
      nsid: fabrics.authenticationSend,
      words: words(8192),
      bytes: 8192,
    };
    for (let command = 0; command < 4; command++) one.queue.sendCommand({ ...message, id: command });
    for (let command = 0; command < 4; command++) expect((await one.queue.pdu()).type).toBe(9); // R2T
    one.queue.sendCommand({ ...message, id: 4 });
    await one.queue.ended();
  });
});

describe("the hosts of a subsystem", () => {
  const namespaces = [memoryDevice({ bytes: 4096 })];
  const opened = (hosts: unknown) => () =>
    NvmeTarget.open({ subsystems: [{ nqn, namespaces, hosts: hosts as never }] });

  it("are refused with a secret that is none, which is not shown", () => {
    const wrong = `${secret.slice(0, -3)}x=:`;
    for (const hosts of [
      [{ nqn: hostNqn, secret: wrong }],
      [{ nqn: hostNqn, secret, controllerSecret: wrong }],
      { nqn: hostNqn, secret },
      [{ nqn: hostNqn, secret, hashes: [] }],
      [{ nqn: hostNqn, secret, dhGroups: ["modp14"] }],
      [{ nqn: hostNqn }],
      [7],
    ]) {
      expect(opened(hosts)).toThrow(/hosts/);
      expect(opened(hosts)).not.toThrow(secret.slice(10, 30));
    }
  });

  it("must prove themselves whatever else the list says", async () => {
    const target = await NvmeTarget.listen({
      subsystems: [{ nqn, namespaces, hosts: [hostNqn, { nqn: hostNqn, secret }, hostNqn] }],
      port: 0,
    });
    targets.push(target);
    const one = await Unproven.open(target.address.port);
    await one.prove();
  });
});
