import { afterEach, describe, expect, it } from "vitest";
import { addonIfThere } from "../../fabric/libfabric/libfabric.ts";
import { messageHeaderBytes, Nonce, numberOffset } from "../../wire/message.ts";
import { KeyChain } from "./key-schedule.ts";
import { MessageOpener, notOpened } from "./message-opener.ts";
import { MessageSealer, messagesOfLink } from "./message-sealer.ts";
import { lastSequence, numberOfSequence, sealedTagBytes } from "./sealed-message.ts";
import { PieceOpener, PieceSealer, piecesOfLink } from "./sealed-pieces.ts";
import { SessionCiphers } from "./session-ciphers.ts";
import { suiteNames } from "./suites.ts";

const nonce = new Nonce(0xc0ffee1122334455n);
const secretOf = (seed: number) => new Uint8Array(32).fill(seed);

function memory() {
  const slab = new Uint8Array(1024);
  return { slab, slabView: new DataView(slab.buffer) };
}

/** Seals a message of one frame that says `text`, as bytes of its own. */
function sealed(sealer: MessageSealer, text: string): Uint8Array {
  const place = memory();
  const { written } = new TextEncoder().encodeInto(text, place.slab.subarray(messageHeaderBytes + 8));
  const bytes = sealer.seal(place, 8, 1, messageHeaderBytes + written, 3, nonce);
  return place.slab.slice(8, 8 + bytes);
}

/** The result of `open` for a message, and the text if it has opened. */
function opened(opener: MessageOpener, message: Uint8Array): number | string {
  const place = memory();
  place.slab.set(message, 16);
  const lost = opener.open(place, 16, message.byteLength);
  const end = 16 + message.byteLength - sealedTagBytes;
  if (lost !== 0) return lost;
  return new TextDecoder().decode(place.slab.subarray(16 + messageHeaderBytes, end));
}

const closing: { close(): void }[] = [];
function session(seed = 1, suite: (typeof suiteNames)[number] = "aes-256-gcm") {
  const connector = SessionCiphers.from(secretOf(seed), "connector", suite);
  const acceptor = SessionCiphers.from(secretOf(seed), "acceptor", suite);
  closing.push(connector, acceptor);
  return { connector, acceptor };
}

afterEach(() => {
  for (const one of closing.splice(0)) one.close();
  expect(addonIfThere()?.aeads()).toBe(0);
});

describe.each(suiteNames)("the ciphers of a session by %s", (suite) => {
  it("open what the other side has sealed, in both directions and for each purpose", () => {
    const { connector, acceptor } = session(1, suite);
    for (const [from, to] of [
      [connector, acceptor],
      [acceptor, connector],
    ] as const) {
      for (const text of ["", "a", "some text of a frame"])
        expect(opened(to.opener, sealed(from.sealer, text))).toBe(text);
      const source = Uint8Array.from({ length: 5000 }, (_, i) => i);
      const target = new Uint8Array(5000);
      const { counter, tag } = from.pieceSealer.seal(source, target, Uint8Array.of(1, 2));
      expect(counter).toBe(1);
      expect(to.pieceOpener.open(counter, tag, target, target, Uint8Array.of(1, 2))).toBe(true);
      expect(Buffer.compare(target, source)).toBe(0);
    }
  });

  it("refuse each changed bit of a message, and take it unchanged afterwards", () => {
    const { connector, acceptor } = session(1, suite);
    const message = sealed(connector.sealer, "text");
    for (let bit = 0; bit < 8 * message.byteLength; bit++) {
      const changed = Uint8Array.from(message);
      changed[bit >> 3] = (changed[bit >> 3] as number) ^ (1 << (bit & 7));
      expect(opened(acceptor.opener, changed)).toBeLessThan(0);
    }
    for (let bytes = 0; bytes < message.byteLength; bytes++)
      expect(opened(acceptor.opener, message.subarray(0, bytes))).toBeLessThan(0);
    expect(opened(acceptor.opener, Uint8Array.of(...message, 0))).toBe(notOpened.forged);
    expect(opened(acceptor.opener, message)).toBe("text");
  });

  it("refuse each changed bit of a piece, of its tag, of its place and its number", () => {
    const { connector, acceptor } = session(1, suite);
    const source = Uint8Array.from({ length: 40 }, (_, i) => i);
    const aad = Uint8Array.of(1, 2, 3);
    const sealedPiece = new Uint8Array(40);
    const { counter, tag } = connector.pieceSealer.seal(source, sealedPiece, aad);
    const open = (number: number, bytes: Uint8Array, with_: Uint8Array, place: Uint8Array) => {
      const target = new Uint8Array(bytes.byteLength).fill(5);
      const good = acceptor.pieceOpener.open(number, with_, bytes, target, place);
      if (!good) expect(target.every((byte) => byte === 0)).toBe(true);
      return good;
    };
    for (const part of [sealedPiece, tag, aad]) {
      for (let bit = 0; bit < 8 * part.byteLength; bit++) {
        part[bit >> 3] = (part[bit >> 3] as number) ^ (1 << (bit & 7));
        expect(open(counter, sealedPiece, tag, aad)).toBe(false);
        part[bit >> 3] = (part[bit >> 3] as number) ^ (1 << (bit & 7));
      }
    }
    for (const other of [0, 2, -1, 1.5, piecesOfLink + 1, 40 * piecesOfLink, Number.NaN, 2 ** 53])
      expect(open(other, sealedPiece, tag, aad)).toBe(false);
    expect(open(counter, sealedPiece.subarray(1), tag, aad)).toBe(false);
    expect(open(counter, sealedPiece, tag.subarray(1), aad)).toBe(false);
    expect(open(counter, sealedPiece, tag, aad)).toBe(true);
    // It does not detect repeats: its caller names a piece once.
    expect(open(counter, sealedPiece, tag, aad)).toBe(true);
  });
});

describe("the ciphers of a session", () => {
  it("drop repeats before a key is touched, and messages that come late", () => {
    const { connector, acceptor } = session();
    const [one, two, three] = ["1", "2", "3"].map((text) => sealed(connector.sealer, text)) as [
      Uint8Array,
      Uint8Array,
      Uint8Array,
    ];
    expect(opened(acceptor.opener, one)).toBe("1");
    expect(opened(acceptor.opener, one)).toBe(notOpened.repeated);
    // Message two was lost or overtaken: the session ends, and the late message is dropped.
    expect(opened(acceptor.opener, three)).toBe(1);
    expect(opened(acceptor.opener, two)).toBe(notOpened.repeated);
    expect(opened(acceptor.opener, three)).toBe(notOpened.repeated);
    expect(opened(acceptor.opener, sealed(connector.sealer, "4"))).toBe("4");
  });

  it("drop what was reflected, or comes from another session", () => {
    const { connector, acceptor } = session();
    const other = session(2);
    expect(opened(connector.opener, sealed(connector.sealer, "mine"))).toBe(notOpened.forged);
    expect(opened(acceptor.opener, sealed(other.connector.sealer, "theirs"))).toBe(notOpened.forged);
    const piece = new Uint8Array(8);
    const { counter, tag } = connector.pieceSealer.seal(piece, piece, new Uint8Array(0));
    expect(connector.pieceOpener.open(counter, tag, piece, new Uint8Array(8), new Uint8Array(0))).toBe(false);
    expect(other.acceptor.pieceOpener.open(counter, tag, piece, new Uint8Array(8), new Uint8Array(0))).toBe(
      false,
    );
  });

  it("drop clear messages, keepalives' number, and forgeries of any number without harm to the next", () => {
    const { connector, acceptor } = session();
    const message = sealed(connector.sealer, "1");
    const clear = Uint8Array.from(message);
    clear[0] = 0xcb;
    expect(opened(acceptor.opener, clear)).toBe(notOpened.clear);
    const numbered = (number: number) => {
      const forged = Uint8Array.from(message);
      new DataView(forged.buffer).setUint32(numberOffset, number, true);
      return opened(acceptor.opener, forged);
    };
    expect(numbered(0)).toBe(notOpened.repeated);
    for (const number of [
      2,
      messagesOfLink - 1,
      messagesOfLink,
      2 * messagesOfLink,
      0x7fff_ffff,
      0x8000_0000,
    ])
      expect(numbered(number)).toBe(notOpened.forged);
    expect(numbered(0xffff_ffff)).toBe(notOpened.repeated);
    expect(opened(acceptor.opener, message)).toBe("1");
  });

  it("fill the secret with zeros", () => {
    const secret = secretOf(9);
    closing.push(SessionCiphers.from(secret, "connector", "aes-256-gcm"));
    expect(secret).toEqual(new Uint8Array(32));
    expect(() => SessionCiphers.from(new Uint8Array(31), "connector", "aes-256-gcm")).toThrow(
      "32 bytes, not 31",
    );
  });

  it("seal and open nothing after their end", () => {
    const { connector, acceptor } = session();
    const message = sealed(connector.sealer, "1");
    const piece = new Uint8Array(8).fill(3);
    const { counter, tag } = connector.pieceSealer.seal(piece, piece, new Uint8Array(0));
    connector.close();
    acceptor.close();
    connector.close();
    expect(() => sealed(connector.sealer, "2")).toThrow("the keys of this session are gone");
    expect(() => connector.pieceSealer.seal(piece, piece, piece)).toThrow(
      "the keys of this session are gone",
    );
    expect(opened(acceptor.opener, message)).toBe(notOpened.forged);
    expect(acceptor.pieceOpener.open(counter, tag, piece, piece, new Uint8Array(0))).toBe(false);
    expect(piece).toEqual(new Uint8Array(8));
  });
});

describe("new keys", () => {
  const chain = () => new KeyChain("aes-256-gcm", secretOf(4), "test");

  /** Both ends of a direction as they are after `sequence` messages. */
  function bothAfter(sequence: number) {
    const sealer = new MessageSealer(chain(), sequence);
    const opener = new MessageOpener(chain(), sequence);
    closing.push(sealer, opener);
    return { sealer, opener };
  }

  it("come with message 2^20, at both sides and without a word", () => {
    const { sealer, opener } = bothAfter(messagesOfLink - 3);
    const messages = ["-2", "-1", "0", "1"].map((text) => sealed(sealer, text));
    expect(messages.map((message) => opened(opener, message))).toEqual(["-2", "-1", "0", "1"]);
    // The one with the former key cannot come back.
    expect(opened(opener, messages[1] as Uint8Array)).toBe(notOpened.repeated);
  });

  it("are not taken for good by a forgery", () => {
    const { sealer, opener } = bothAfter(messagesOfLink - 2);
    const last = sealed(sealer, "last");
    const first = sealed(sealer, "first");
    const forged = Uint8Array.from(first);
    forged[30] = (forged[30] as number) ^ 1;
    expect(opened(opener, forged)).toBe(notOpened.forged);
    expect(opened(opener, last)).toBe("last");
    expect(opened(opener, first)).toBe("first");
  });

  it("are found when the last messages of a link were lost, and the link after the next is not looked for", () => {
    const { sealer, opener } = bothAfter(messagesOfLink - 3);
    sealed(sealer, "lost");
    sealed(sealer, "lost too");
    sealed(sealer, "first of the next, lost");
    expect(opened(opener, sealed(sealer, "second of the next"))).toBe(3);
    expect(opened(opener, sealed(sealer, "third"))).toBe("third");
    const far = bothAfter(3 * messagesOfLink);
    expect(opened(bothAfter(messagesOfLink - 1).opener, sealed(far.sealer, "far"))).toBe(notOpened.forged);
  });

  it("differ from the old ones: the number of a former link opens nothing", () => {
    const { sealer, opener } = bothAfter(messagesOfLink - 2);
    const old = sealed(sealer, "old");
    expect(opened(opener, old)).toBe("old");
    expect(opened(opener, sealed(sealer, "new"))).toBe("new");
    new DataView(old.buffer).setUint32(numberOffset, messagesOfLink + 1, true);
    expect(opened(opener, old)).toBe(notOpened.forged);
  });

  it("stay the same when the numbers come round, which the sequence tells apart", () => {
    const { sealer, opener } = bothAfter(0xffff_fffd);
    const messages = ["a", "b", "c", "d"].map((text) => sealed(sealer, text));
    const numbers = messages.map((message) => new DataView(message.buffer).getUint32(numberOffset, true));
    expect(numbers).toEqual([0xffff_fffe, 0xffff_ffff, 1, 2]);
    expect(messages.map((message) => opened(opener, message))).toEqual(["a", "b", "c", "d"]);
    expect(messages.map((message) => opened(opener, message))).toEqual(Array(4).fill(notOpened.repeated));
    expect([0x1_ffff_fffe, 0x1_ffff_ffff].map(numberOfSequence)).toEqual([0xffff_ffff, 1]);
  });

  it("end with the sequence: nothing is sealed under a number that JavaScript cannot tell from the next", () => {
    const { sealer, opener } = bothAfter(lastSequence - 2);
    for (const text of ["last but one", "last"]) expect(opened(opener, sealed(sealer, text))).toBe(text);
    const place = memory();
    expect(sealer.seal(place, 0, 1, messageHeaderBytes, 3, nonce)).toBe(-1);
    expect(place.slab.every((byte) => byte === 0)).toBe(true);
    const forged = sealed(bothAfter(0).sealer, "x");
    new DataView(forged.buffer).setUint32(numberOffset, numberOfSequence(lastSequence) + 1, true);
    expect(opened(opener, forged)).toBe(notOpened.forged);
  });

  it("come with piece 2^18, and pieces of the link before still open", () => {
    const sealer = new PieceSealer(chain(), piecesOfLink - 2);
    const opener = new PieceOpener(chain());
    closing.push(sealer, opener);
    const pieces = [1, 2, 3].map((text) => {
      const bytes = new Uint8Array(8).fill(text);
      return { bytes, ...sealer.seal(bytes, bytes, new Uint8Array(0)) };
    });
    expect(pieces.map(({ counter }) => counter)).toEqual([piecesOfLink - 1, piecesOfLink, piecesOfLink + 1]);
    for (const { counter, tag, bytes } of pieces.reverse())
      expect(opener.open(counter, tag, bytes, new Uint8Array(8), new Uint8Array(0))).toBe(true);
  });

  it("come by volume: a long piece counts as several", () => {
    const { connector } = session();
    const counterOf = (bytes: number) => {
      const memory = new Uint8Array(bytes);
      return connector.pieceSealer.seal(memory, memory, new Uint8Array(0)).counter;
    };
    expect([counterOf(2 ** 18), counterOf(2 ** 20 + 1), counterOf(0), counterOf(1)]).toEqual([1, 2, 7, 8]);
  });

  it("of pieces are found when several links passed of which nothing was pulled", () => {
    const sealer = new PieceSealer(chain(), 5 * piecesOfLink);
    const opener = new PieceOpener(chain());
    closing.push(sealer, opener);
    const bytes = new Uint8Array(8);
    const { counter, tag } = sealer.seal(bytes, bytes, new Uint8Array(0));
    expect(opener.open(counter, tag, bytes, bytes, new Uint8Array(0))).toBe(true);
    const far = new PieceSealer(chain(), 23 * piecesOfLink);
    closing.push(far);
    const piece = far.seal(bytes, bytes, new Uint8Array(0));
    expect(opener.open(piece.counter, piece.tag, bytes, bytes, new Uint8Array(0))).toBe(false);
  });
});
