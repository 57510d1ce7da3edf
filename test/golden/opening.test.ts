import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { FakePort } from "../../src/session/connection/fake-port.test-support.ts";
import {
  openingMessage,
  packSecureHello,
  packTerms,
  parseSecureHello,
  parseTerms,
  readOpeningFrame,
  type SecureHello,
  withTerms,
} from "../../src/session/opening/opening-message.ts";
import { encode } from "../../src/wire/codec.ts";
import { frameKind } from "../../src/wire/frame.ts";
import { readHello } from "../../src/wire/hello.ts";

interface Vectors {
  readonly messages: Readonly<Record<string, string>>;
  /** SHA-256 over the hello and the acceptor's terms, to which the keys are bound. */
  readonly context: string;
}

const vectors: Vectors = JSON.parse(readFileSync(new URL("./opening.json", import.meta.url), "utf8"));
const cookie = Uint8Array.from({ length: 16 }, (_, i) => i);
const hello: SecureHello = {
  versions: [2, 2],
  session: 3,
  nonce: 0xc0ffee1122334455n,
  address: Uint8Array.from(Buffer.from("0200c3500a0000070000000000000000", "hex")),
  messageBytes: 16_384,
  suites: [1, 2],
  flight: Uint8Array.of(0x16, 0x03, 0x01, 0x00, 0x05),
};
const terms = { session: 7, nonce: 0x5eed000198badcfen, messageBytes: 16_384, suite: 1 };
const flight = Uint8Array.of(0x16, 0x03, 0x03, 0x00, 0x02);
const first = Buffer.concat([packTerms(terms), flight]);

const meant: Readonly<Record<string, Uint8Array>> = {
  hello: openingMessage(frameKind.hello, 0, encode(packSecureHello(hello))),
  "hello with a cookie": openingMessage(
    frameKind.hello,
    0,
    encode(packSecureHello({ ...hello, cookie, repeats: 9n })),
  ),
  retry: openingMessage(frameKind.retry, 0, cookie, hello),
  "the acceptor's first flight": openingMessage(frameKind.secure, withTerms, first, hello),
  "the connector's last flight": openingMessage(frameKind.secure, 0, flight, terms),
  refuse: openingMessage(frameKind.refuse, 16, encode({ m: "the certificate has expired" }), hello),
};

function received(name: string): [FakePort, number, number] {
  const bytes = Uint8Array.from(Buffer.from(vectors.messages[name] as string, "hex"));
  const port = new FakePort(2, 16_384);
  return [port, port.receive(bytes), bytes.byteLength];
}

function frameOf(name: string) {
  const [port, offset, bytes] = received(name);
  const frame = readOpeningFrame(port.slab, port.slabView, offset, bytes);
  if (typeof frame === "string") expect.fail(frame);
  return { ...frame, body: Uint8Array.from(frame.body) };
}

describe("golden vectors of an opening by TLS", () => {
  it.each(Object.entries(meant))("are what is sent: %s", (name, message) => {
    expect(Buffer.from(message).toString("hex")).toBe(vectors.messages[name]);
  });

  it("are read for what they mean", () => {
    for (const [name, meaning] of [
      ["hello", hello],
      ["hello with a cookie", { ...hello, cookie, repeats: 9n }],
    ] as const) {
      const read = readHello(...received(name));
      if (typeof read === "string") expect.fail(read);
      expect(parseSecureHello(read.value)).toEqual({ cookie: undefined, repeats: undefined, ...meaning });
    }
    expect(frameOf("retry")).toEqual({ kind: frameKind.retry, word: 0, body: cookie });
    const answer = frameOf("the acceptor's first flight");
    expect(answer).toMatchObject({ kind: frameKind.secure, word: withTerms });
    expect(parseTerms(answer.body)).toMatchObject(terms);
    expect(frameOf("the connector's last flight")).toEqual({ kind: frameKind.secure, word: 0, body: flight });
  });

  it("bind the keys to the hello as it was sent, and to the acceptor's terms", () => {
    const message = Buffer.from(vectors.messages.hello as string, "hex");
    const context = createHash("sha256").update(message).update(packTerms(terms)).digest("hex");
    expect(context).toBe(vectors.context);
  });
});
