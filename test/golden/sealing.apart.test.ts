import { readFileSync } from "node:fs";
import { afterAll, describe, expect, it } from "vitest";
import { addonIfThere } from "../../src/fabric/libfabric/libfabric.ts";
import { expand, KeyChain } from "../../src/security/sealing/key-schedule.ts";
import { MessageOpener } from "../../src/security/sealing/message-opener.ts";
import { MessageSealer, messagesOfLink } from "../../src/security/sealing/message-sealer.ts";
import { sealedTagBytes } from "../../src/security/sealing/sealed-message.ts";
import { SessionCiphers } from "../../src/security/sealing/session-ciphers.ts";
import { type SuiteName, suiteNames } from "../../src/security/sealing/suites.ts";
import { messageHeaderBytes, Nonce } from "../../src/wire/message.ts";

interface SealedVectors {
  readonly first: string;
  readonly second: string;
  /** The first message under the second key: that of sequence 2^20. */
  readonly "of the second link": string;
  /** The acceptor's guard's fifth. */
  readonly keepalive: string;
  readonly piece: { counter: number; aad: string; text: string; sealed: string; tag: string };
}

/** Made by node:crypto alone; docs/protocol.md tells how. Peers of other versions rely on each byte. */
const golden: {
  readonly secret: string;
  readonly chains: Readonly<Record<string, readonly { key: string; iv: string }[]>>;
  readonly frames: { readonly ping: string; readonly pong: string };
  readonly suites: Readonly<Record<SuiteName, SealedVectors>>;
} = JSON.parse(readFileSync(new URL("sealing.json", import.meta.url), "utf8"));

const hex = (text: string) => Uint8Array.from(Buffer.from(text, "hex"));
const textOf = (bytes: Uint8Array) => Buffer.from(bytes).toString("hex");
const nonce = new Nonce(0xc0ffee1122334455n);
const ciphers = (role: "connector" | "acceptor", suite: SuiteName) =>
  SessionCiphers.from(hex(golden.secret), role, suite);

/** A message's memory, with its frames in place and room for the tag. */
function place(frames: Uint8Array, headerBytes = messageHeaderBytes) {
  const slab = new Uint8Array(headerBytes + frames.byteLength + sealedTagBytes);
  slab.set(frames, headerBytes);
  return { slab, slabView: new DataView(slab.buffer) };
}

afterAll(() => expect(addonIfThere()?.aeads()).toBe(0));

describe("the keys of a session", () => {
  it.each(Object.keys(golden.chains))("of the label %s follow from the secret, link by link", (label) => {
    let secret = hex(golden.secret);
    const links = (golden.chains[label] ?? []).map(() => {
      const link = expand(secret, label, 76);
      secret = link.slice(44);
      return { key: textOf(link.subarray(0, 32)), iv: textOf(link.subarray(32, 44)) };
    });
    expect(links).toHaveLength(3);
    expect(links).toEqual(golden.chains[label]);
  });
});

describe.each(suiteNames)("by %s", (suite) => {
  const vectors = golden.suites[suite];

  it("the first messages of a connector have these bytes", () => {
    const connector = ciphers("connector", suite);
    const acceptor = ciphers("acceptor", suite);
    for (const expected of [vectors.first, vectors.second]) {
      const memory = place(hex(golden.frames.ping));
      expect(connector.sealer.seal(memory, 0, 1, 40, 3, nonce)).toBe(56);
      expect(textOf(memory.slab)).toBe(expected);
      expect(acceptor.opener.open(memory, 0, 56)).toBe(0);
      expect(textOf(memory.slab.subarray(24, 40))).toBe(golden.frames.ping);
    }
    connector.close();
    acceptor.close();
  });

  it("the message with which the second key begins has these bytes", () => {
    const chain = () => new KeyChain(suite, hex(golden.secret), "cinnabar 1 connector");
    const sealer = new MessageSealer(chain(), messagesOfLink - 1);
    const opener = new MessageOpener(chain(), messagesOfLink - 1);
    const memory = place(hex(golden.frames.ping));
    sealer.seal(memory, 0, 1, 40, 3, nonce);
    expect(textOf(memory.slab)).toBe(vectors["of the second link"]);
    expect(opener.open(memory, 0, 56)).toBe(0);
    sealer.close();
    opener.close();
  });

  it("a keepalive of the acceptor's guard has these bytes", () => {
    const connector = ciphers("connector", suite);
    const acceptor = ciphers("acceptor", suite);
    const memory = place(hex(golden.frames.pong), 32);
    memory.slab.set(hex(vectors.keepalive).subarray(0, 32));
    acceptor.guard.sealing.sealMessage(memory.slab, 0, 32, 16, 5);
    expect(textOf(memory.slab)).toBe(vectors.keepalive);
    expect(connector.guard.opener.open(memory, 0, 64)).toBe(true);
    expect(textOf(memory.slab.subarray(24, 40))).toBe(golden.frames.pong);
    connector.close();
    acceptor.close();
  });

  it("a piece of an acceptor has these bytes", () => {
    const connector = ciphers("connector", suite);
    const acceptor = ciphers("acceptor", suite);
    const { counter, aad, text, sealed, tag } = vectors.piece;
    const target = hex(text);
    const seal = acceptor.pieceSealer.seal(target, target, hex(aad));
    expect([seal.counter, textOf(seal.tag), textOf(target)]).toEqual([counter, tag, sealed]);
    expect(connector.pieceOpener.open(counter, seal.tag, target, target, hex(aad))).toBe(true);
    expect(textOf(target)).toBe(text);
    connector.close();
    acceptor.close();
  });
});
