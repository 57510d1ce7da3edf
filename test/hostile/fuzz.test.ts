import { Engine } from "cinnabar";
import { expect, it } from "vitest";
import {
  messageHeaderBytes,
  nonceOffset,
  numberOffset,
  protocolVersion,
  sessionOffset,
} from "../../src/wire/message.ts";
import { isLong } from "../matrix/long.ts";
import { seeded } from "../matrix/random.ts";
import { Attacker } from "./support/attacker.ts";
import { AttackedPort } from "./support/fabric.ts";
import { Target, Victim } from "./support/victim.ts";

const maxMessages = isLong ? 20_000 : 5_000;
const maxMs = 20_000;
/** Few at a time: what follows a fault in the same session is a stray, and reaches nothing. */
const batch = 2;
const honestSession = 1;
const plainSend = AttackedPort.prototype.send;

/** What an honest client sends in a session that uses everything, message by message. */
async function recordSession(url: string): Promise<Uint8Array[]> {
  const recorded: Uint8Array[] = [];
  await using engine = await Engine.open();
  AttackedPort.prototype.send = function (address, slot, bytes, owner) {
    const message = Uint8Array.from(this.slab.subarray(slot, slot + bytes));
    // Not what the victim says, and not what the honest peer says: nobody else knows its nonce.
    if (this.url !== url && new DataView(message.buffer).getUint32(sessionOffset, true) !== honestSession)
      recorded.push(message);
    plainSend.call(this, address, slot, bytes, owner);
  };
  try {
    const client = (await engine.connect(url)).client(Target);
    const abort = new AbortController();
    using region = engine.expose(new Uint8Array(4096), { access: "read_write" });
    const calls = [
      client.echo({ id: 1, text: "text" }),
      client.bytes(new Uint8Array(300)),
      client.bytes(new Uint8Array(40_000)),
      client.long(),
      client.fill({ into: region }),
      client.read({ from: region }),
      client.fail({ id: "x" }).catch(() => {}),
      client
        .wait(
          { a: [1, 2.5, "t", null, true, new Date(0), new Set([1]), { b: 2n ** 70n }] },
          { signal: abort.signal },
        )
        .catch(() => {}),
      client.wait(1, { timeoutMs: 20 }).catch(() => {}),
    ];
    setImmediate(() => abort.abort());
    await Promise.all(calls);
    for (let i = 0; i < 5; i++) await client.echo({ id: i, text: "x".repeat(i * 10) });
    await engine.close();
  } finally {
    AttackedPort.prototype.send = plainSend;
  }
  return recorded;
}

/**
 * Changes a message in one to three ways, then mostly makes its header fit again, so that what was changed is reached.
 */
function mutate(messages: readonly Uint8Array[], random: () => number, attacker: Attacker): Uint8Array {
  const below = (limit: number) => Math.floor(random() * limit);
  const pick = () => messages[below(messages.length)] as Uint8Array;
  let bytes: Uint8Array<ArrayBufferLike> = Uint8Array.from(pick());
  for (let changes = 1 + below(3); changes > 0; changes--) {
    const at = below(bytes.byteLength);
    switch (below(7)) {
      case 0: // one bit
        bytes[at] = (bytes[at] as number) ^ (1 << below(8));
        break;
      case 1: // one byte, often a telling one
        bytes[at] = [0, 0x7f, 0x80, 0xc1, 0xff, below(256)][below(6)] as number;
        break;
      case 2: // cut
        bytes = bytes.slice(0, at);
        break;
      case 3: // insert
        bytes = Uint8Array.from([
          ...bytes.subarray(0, at),
          ...Array.from({ length: 1 + below(12) }, () => below(256)),
          ...bytes.subarray(at),
        ]);
        break;
      case 4: // a length or another field of four bytes
        if (at + 4 <= bytes.byteLength) {
          const value = [0, 1, bytes.byteLength, 0x7fff_ffff, 0xffff_ffff, below(2 ** 32)][
            below(6)
          ] as number;
          new DataView(bytes.buffer).setUint32(at & ~3, value >>> 0, true);
        }
        break;
      case 5: {
        // splice: the head of one and the tail of another
        const other = pick();
        bytes = Uint8Array.from([...bytes.subarray(0, at), ...other.subarray(below(other.byteLength))]);
        break;
      }
      default: // leave out a piece
        bytes = Uint8Array.from([...bytes.subarray(0, at), ...bytes.subarray(at + 1 + below(16))]);
    }
    if (bytes.byteLength === 0) bytes = new Uint8Array(1);
  }
  if (bytes.byteLength > 16_384) bytes = bytes.slice(0, 16_384);
  if (bytes.byteLength >= messageHeaderBytes) {
    const view = new DataView(bytes.buffer);
    const isHello = view.getUint32(sessionOffset, true) === 0;
    if (random() < 0.9) {
      view.setUint8(0, 0xcb);
      view.setUint8(1, protocolVersion);
      view.setUint32(4, bytes.byteLength, true);
    }
    if (!isHello && random() < 0.95) {
      view.setUint32(sessionOffset, attacker.session, true);
      view.setBigUint64(nonceOffset, attacker.nonce, true);
      if (random() < 0.98) view.setUint32(numberOffset, ++attacker.number, true);
    }
  }
  return bytes;
}

it("a server survives mutated messages, serves on, and ends at rest", async () => {
  const seed = Number(process.env.CINNABAR_SEED ?? Date.now() % 2 ** 31);
  console.log(`fuzz: CINNABAR_SEED=${seed}`);
  const random = seeded(seed);
  const victim = await Victim.open({ limits: { maxSessions: 40 }, heartbeatMs: 200 });
  const messages = await recordSession(victim.url);
  expect(messages.length).toBeGreaterThan(8);

  const before = victim.counters;
  const startMs = performance.now();
  let sent = 0;
  let lives = 0;
  while (sent < maxMessages && performance.now() - startMs < maxMs) {
    // A new attacker now and then: what the last one has opened goes with it.
    using attacker = await Attacker.at(victim.url);
    for (let sessions = 0; sessions < 30 && sent < maxMessages; sessions++) {
      // A flood of its own mutated hellos may have taken all sessions; they go with the attacker.
      if (victim.engine.stats().sessions >= 39) break;
      await attacker.connect();
      lives++;
      // A mutant may be a goodbye, which nobody answers: strays show that the session is no more.
      const { strays } = victim.counters;
      while (sent < maxMessages && victim.counters.strays < strays + batch) {
        for (let i = 0; i < batch; i++, sent++) {
          await attacker.send(mutate(messages, random, attacker));
        }
        await attacker.turn();
      }
    }
    attacker.port.close();
    await attacker.until(
      () => victim.engine.stats().sessions === 1,
      `end of the attacker's sessions (seed ${seed})`,
    );
  }
  const { malformed, strays, requestsStarted, lateAnswers } = victim.counters;
  console.log(
    `fuzz: ${sent} messages in ${Math.round(performance.now() - startMs)} ms, ${lives} sessions, ` +
      `${malformed - before.malformed} malformed, ${strays} strays, ${requestsStarted} requests, ${lateAnswers} late answers`,
  );
  expect(malformed).toBeGreaterThan(100);
  await victim.expectUnharmed();
}, 120_000);
