import { connect } from "node:net";
import { resolveNested } from "cinnabar/options";
import { expect, it, onTestFinished } from "vitest";
import { losesPower } from "../device/loses-power.ts";
import { memoryDevice } from "../device/memory-device.ts";
import { FakeSocket } from "../fake-socket.test-support.ts";
import { numbersFrom } from "../numbers.test-support.ts";
import { TestAuthority } from "./certificates.test-support.ts";
import { Exports } from "./exports.ts";
import {
  contextMessage,
  goMessage,
  NbdClient,
  oneExport,
  optionMessage,
  requestMessage,
} from "./nbd-client.test-support.ts";
import { nbdConnection, serveNbd } from "./nbd-server.ts";
import { magic, option, optionReply } from "./protocol.ts";
import { TlsUpgrade, tlsFields } from "./tls-upgrade.ts";

/** How many mutated messages are tried. The stage disks-fuzz of `npm test` sets ten million. */
const messages = Number(process.env.CINNABAR_AMOUNT ?? 5_000);

const extremes32 = [0, 1, 511, 4096, 65_536, 65_537, 2 ** 25, 2 ** 25 + 1, 2 ** 31, 2 ** 32 - 1];
const extremes64 = [
  0n,
  1n,
  4096n,
  2n ** 20n,
  2n ** 32n,
  2n ** 53n,
  2n ** 63n,
  2n ** 64n - 4096n,
  2n ** 64n - 1n,
];

it(`${messages} mutated messages of NBD get answers of the protocol or the end of the connection`, async () => {
  const next = numbersFrom(Number(process.env.CINNABAR_SEED ?? 1));
  const { opening, request, mutated, push } = clientBy(next);
  const device = losesPower(memoryDevice({ bytes: 2 ** 20, blockBytes: 512 }));
  const exports = new Exports(
    "fuzz",
    new Map([
      ["disk", device],
      ["other", memoryDevice({ bytes: 2 ** 20 })],
    ]),
  );
  const counts = { reads: 0, writes: 0, others: 0, failed: 0 };
  let connections = 0;
  for (let tried = 0; tried < messages; connections++) {
    const socket = new FakeSocket();
    const connection = nbdConnection(socket, exports, {
      maxBytes: 2 ** 18,
      counts,
      admit: () => true,
    });
    const run = connection.run();
    const agreed = [Buffer.from([0, 0, 0, 3]), ...opening()];
    const asked = Array.from({ length: 1 + next(24) }, request).flat();
    tried += agreed.length + asked.length;
    // A message that does not reach its part of the server tests nothing: most handshakes are whole.
    for (const part of agreed) push(socket, mutated(part, 20));
    for (const part of asked) push(socket, mutated(part, 5));
    socket.push(null);
    await run;
    checkAnswers(Buffer.concat(socket.sent));
    expect(socket.destroyed).toBe(true);
  }
  expect(connections).toBeGreaterThan(messages / 100);
  for (const count of Object.values(counts)) expect(count).toBeGreaterThan(messages / 100);
});

/** A real connection takes longer, too, and its time is that of the kernel. */
const messagesOverTcp = Math.min(messages / 5, 20_000);

it(`${messagesOverTcp} mutated messages over TCP, with clients that vanish, harm no other client`, async () => {
  const next = numbersFrom(Number(process.env.CINNABAR_SEED ?? 3));
  const { opening, request, mutated } = clientBy(next);
  const disks = new Map([
    ["disk", memoryDevice({ bytes: 2 ** 20, blockBytes: 512 })],
    ["good", memoryDevice({ bytes: 2 ** 22 })],
  ]);
  const server = await serveNbd(disks, { port: 0, maxBytesPerConnection: 2 ** 18 });
  onTestFinished(() => server.close());
  const good = await NbdClient.open(server.uri, { name: "good" });
  const { port } = new URL(server.uri);
  let tried = 0;
  let isOver = false;
  const hostile = async () => {
    for (; tried < messagesOverTcp; ) {
      const socket = connect(Number(port)).on("error", () => {}); // "close" follows
      socket.resume();
      const closed = new Promise((resolve) => socket.once("close", resolve));
      await new Promise((resolve) => socket.once("connect", resolve));
      socket.setNoDelay(true);
      const long = requestMessage({ type: 1, bytes: 2 ** 17, offset: 4096 });
      const agreed = [Buffer.from([0, 0, 0, 3]), ...opening()].map((part) => mutated(part, 20));
      const asked = Array.from({ length: 1 + next(24) }, () =>
        next(8) === 0 ? [long, Buffer.alloc(2 ** 17, next(256))] : request(),
      ).flat();
      tried += agreed.length + asked.length;
      for (const part of [...agreed, ...asked.map((part) => mutated(part, 5))]) {
        const cut = next(part.length + 1);
        socket.write(part.subarray(0, cut));
        if (next(3) === 0) await new Promise(setImmediate);
        socket.write(part.subarray(cut));
      }
      const end = next(4);
      if (end < 2) socket.end();
      // Node cannot reset a socket that it shuts down because the server has ended.
      else if (end === 2 || socket.writableEnded) socket.destroy();
      else socket.resetAndDestroy();
      await closed;
    }
  };
  const honest = async () => {
    for (let round = 0; !isOver; round++) {
      const data = Buffer.alloc(2 ** 18, `round ${round} `);
      expect(await good.errorOf({ type: 1, bytes: data.length, offset: 4096 }, data)).toBe(0);
      expect((await good.read(4096, data.length)).equals(data)).toBe(true);
    }
  };
  const checking = honest();
  await Promise.all(Array.from({ length: 4 }, hostile));
  isOver = true;
  await checking;
  await expect.poll(() => server.stats()).toMatchObject({ open: 1, inHandshake: 0, waiting: 0 });
  const { reads, writes, others, failed } = server.stats();
  for (const count of [reads, writes, others, failed]) expect(count).toBeGreaterThan(messagesOverTcp / 100);
});

/** Each connection starts TLS, which takes longer. */
const messagesBeforeTls = Math.min(messages / 5, 200_000);

it(`${messagesBeforeTls} mutated messages before TLS get no answer but that TLS is required`, async () => {
  const next = numbersFrom(Number(process.env.CINNABAR_SEED ?? 2));
  const { opening, request, mutated, push } = clientBy(next);
  const pair = new TestAuthority("an authority").issue("server");
  const tls = new TlsUpgrade("fuzz", resolveNested("fuzz", "tls", pair, tlsFields));
  const counts = { reads: 0, writes: 0, others: 0, failed: 0 };
  const replies = new Map<number | "alert", number>();
  for (let tried = 0; tried < messagesBeforeTls; ) {
    const socket = new FakeSocket().on("error", () => {}); // "close" follows
    const options = { maxBytes: 2 ** 18, counts, tls, admit: () => true };
    const run = nbdConnection(socket, oneExport(memoryDevice({ bytes: 2 ** 20 })), options).run();
    const begun = next(2) === 0 ? [optionMessage(option.startTls, Buffer.alloc(next(4) === 0 ? 1 : 0))] : [];
    const asked = Array.from({ length: next(4) }, request).flat();
    const hello = begun.length > 0 && next(4) > 0 ? [helloRecord(next(256))] : [];
    const parts = [Buffer.from([0, 0, 0, 3]), ...opening(), ...begun, ...hello, ...opening(), ...asked];
    tried += parts.length;
    // All at once, and the end with it; or each part when the server has had its turn, as TLS needs it to begin.
    const isSlow = next(2) === 0;
    // Node's TLS over a stream without a handle waits for the rest of a record after the end. A socket's connection ends.
    if (isSlow) socket.once("end", () => setImmediate(() => socket.destroy()));
    for (const part of parts) {
      push(socket, mutated(part, 20));
      if (isSlow) await new Promise(setImmediate);
    }
    socket.push(null);
    await run;
    expect(socket.destroyed).toBe(true);
    for (const type of repliesBeforeTls(Buffer.concat(socket.sent)))
      replies.set(type, (replies.get(type) ?? 0) + 1);
  }
  expect(counts).toEqual({ reads: 0, writes: 0, others: 0, failed: 0 });
  expect([...replies.keys()].sort()).toEqual(
    [optionReply.ack, optionReply.invalid, optionReply.tlsRequired, "alert"].sort(),
  );
});

/** Messages of a client, and what becomes of them on their way. */
function clientBy(next: (below: number) => number) {
  return { opening, request, mutated, push };

  function opening(): Buffer[] {
    const options = [
      () => optionMessage(option.list),
      () => optionMessage(option.structuredReply),
      () =>
        contextMessage(["base:allocation"], next(2) === 0 ? option.setMetaContext : option.listMetaContext),
      () => goMessage("disk", [0, 1, 2, 3], option.info),
      () => optionMessage(next(20), Buffer.alloc(next(64), next(256))),
    ];
    const chosen = Array.from({ length: next(4) }, () => options[next(options.length)]?.() as Buffer);
    const structured = next(2) === 0 ? [optionMessage(option.structuredReply)] : [];
    const context = structured.length > 0 && next(2) === 0 ? [contextMessage(["base:allocation"])] : [];
    const last = next(8) === 0 ? optionMessage(option.exportName, Buffer.from("disk")) : goMessage("disk");
    return [...chosen, ...structured, ...context, last];
  }

  function request(): Buffer[] {
    const type = next(9);
    const bytes = 512 * (1 + next(16));
    const fields = { type, flags: next(8) === 0 ? next(64) : 0, cookie: next(2 ** 32), bytes };
    const head = requestMessage({
      ...fields,
      offset: 512 * next(2000),
      ...(type === 3 ? { offset: 0, bytes: 0 } : {}),
    });
    return type === 1 ? [head, Buffer.alloc(bytes, next(256))] : [head];
  }

  /** Mutates one of `share` messages. */
  function mutated(message: Buffer, share: number): Buffer {
    if (next(share) > 0) return message;
    const copy = Buffer.from(message);
    const at = next(copy.length);
    switch (next(6)) {
      case 0:
        copy[at] = (copy[at] ?? 0) ^ (1 << next(8));
        return copy;
      case 1:
        if (copy.length >= at + 4) copy.writeUInt32BE(extremes32[next(extremes32.length)] ?? 0, at);
        return copy;
      case 2:
        if (copy.length >= at + 8) copy.writeBigUInt64BE(extremes64[next(extremes64.length)] ?? 0n, at);
        return copy;
      case 3:
        return copy.subarray(0, at);
      case 4:
        return Buffer.concat([copy.subarray(0, at), Buffer.alloc(next(40), next(256)), copy.subarray(at)]);
      default:
        return Buffer.concat([copy, copy]);
    }
  }

  /** In parts of any length, as a network does. */
  function push(socket: FakeSocket, message: Buffer): void {
    const cut = next(4) === 0 ? next(message.length + 1) : 0;
    for (const part of [message.subarray(0, cut), message.subarray(cut)])
      if (part.length > 0) socket.push(part);
  }
}

/** A record of TLS with the head of a ClientHello, and no sense behind it. */
function helloRecord(filler: number): Buffer {
  return Buffer.concat([Buffer.from("1603010200010001fc0303", "hex"), Buffer.alloc(506, filler)]);
}

/** What the server sent is a greeting, replies to options, and one kind of replies to requests, each whole. */
function checkAnswers(sent: Buffer): void {
  expect(sent.readBigUInt64BE(0)).toBe(magic.greeting);
  let at = 18;
  while (at + 20 <= sent.length && sent.readBigUInt64BE(at) === magic.optionReply)
    at += 20 + sent.readUInt32BE(at + 16);
  if (at + 10 <= sent.length && !isReply(at))
    at += [10, 134].find((length) => at + length >= sent.length || isReply(at + length)) ?? 0;
  if (at >= sent.length) {
    expect(at).toBe(sent.length);
    return;
  }
  if (sent.readUInt32BE(at) === magic.chunk) {
    while (at < sent.length) {
      if (sent.readUInt32BE(at) !== magic.chunk) throw new Error(`no chunk at ${at}`);
      at += 20 + sent.readUInt32BE(at + 16);
    }
    expect(at).toBe(sent.length);
  } else expect(sent.readUInt32BE(at)).toBe(magic.simpleReply);

  function isReply(place: number): boolean {
    return (
      place + 4 <= sent.length &&
      [magic.chunk, magic.simpleReply].some((one) => one === sent.readUInt32BE(place))
    );
  }
}

/** The types of the replies to options, and the alerts. Behind the reply that lets TLS begin there are records of TLS alone. */
function repliesBeforeTls(sent: Buffer): (number | "alert")[] {
  const types: (number | "alert")[] = [];
  let hasBegun = false;
  let at = 18;
  while (!hasBegun && at < sent.length) {
    expect(sent.readBigUInt64BE(at)).toBe(magic.optionReply);
    const [number, type] = [sent.readUInt32BE(at + 8), sent.readUInt32BE(at + 12)];
    if (type === optionReply.ack) expect([option.abort, option.startTls]).toContain(number);
    if (type === optionReply.invalid) expect(number).toBe(option.startTls);
    hasBegun = type === optionReply.ack && number === option.startTls;
    types.push(type);
    at += 20 + sent.readUInt32BE(at + 16);
  }
  // An alert is all that a server has for what is no TLS.
  while (at < sent.length) {
    expect(sent[at]).toBe(0x15);
    types.push("alert");
    at += 5 + sent.readUInt16BE(at + 3);
  }
  expect(at).toBe(sent.length);
  return types;
}
