import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { codeToNumber } from "../../src/base/errors/code.ts";
import { RpcError } from "../../src/base/errors/rpc-error.ts";
import { defaultWindow } from "../../src/base/flow/in-flight-window.ts";
import { FakePort, takeApart } from "../../src/session/connection/fake-port.test-support.ts";
import { FakeServices } from "../../src/session/connection/fake-services.test-support.ts";
import { LoneMessage } from "../../src/session/connection/hellos.ts";
import { Session } from "../../src/session/connection/session.ts";
import { goodbyeBody } from "../../src/session/opening/end-reasons.ts";
import { encode } from "../../src/wire/encode-value.ts";
import { frameKind } from "../../src/wire/frame.ts";
import {
  helloMessage,
  packSecureHello,
  packTerms,
  parseSecureHello,
  parseTerms,
  readHello,
  type SecureHello,
  withTerms,
} from "../../src/wire/hello.ts";
import { Nonce } from "../../src/wire/message.ts";

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

/** The first message that a session sends. */
function sentBy(act: (session: Session) => void): Uint8Array {
  const port = new FakePort(2, 16_384);
  const names = { address: 4, index: 3, nonce: new Nonce(hello.nonce), peerName: "the peer" };
  const session = new Session(new FakeServices().terms(), port, names, defaultWindow);
  act(session);
  session.flush();
  return port.sent[0]?.bytes as Uint8Array;
}

const raw = (kind: number, word: number, body: Uint8Array, path?: typeof terms) =>
  sentBy((session) => {
    if (path !== undefined) session.addressTo({ ...path, address: hello.address });
    session.outbox.raw({ kind, method: 0, callId: 0, word }, 0, body);
  });

/** Where a hello leads to no session. */
function answer(kind: number, word: number, body: Uint8Array): Uint8Array {
  const port = new FakePort(2, 16_384);
  new LoneMessage(port, 4, new FakeServices()).say(hello, { kind, method: 0, callId: 0, word }, body);
  return port.sent[0]?.bytes as Uint8Array;
}

const expired = new RpcError({ code: "unauthenticated", message: "the certificate has expired" });
const again = { ...hello, cookie, repeats: 9n };

const meant: Readonly<Record<string, Uint8Array>> = {
  hello: raw(frameKind.hello, 0, encode(packSecureHello(hello))),
  "hello with a cookie": raw(frameKind.hello, 0, encode(packSecureHello(again))),
  retry: answer(frameKind.retry, 0, cookie),
  "the acceptor's first flight": raw(frameKind.secure, withTerms, first, { ...hello, suite: 0 }),
  "the connector's last flight": raw(frameKind.secure, 0, flight, terms),
  refuse: answer(frameKind.refuse, codeToNumber(expired.code), encode(goodbyeBody(expired))),
};

function received(name: string): [FakePort, number, number] {
  const bytes = Uint8Array.from(Buffer.from(vectors.messages[name] as string, "hex"));
  const port = new FakePort(2, 16_384);
  return [port, port.receive(bytes), bytes.byteLength];
}

const frameOf = (name: string) =>
  takeApart(0, Uint8Array.from(Buffer.from(vectors.messages[name] as string, "hex"))).frames[0];

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
    expect(frameOf("retry")).toMatchObject({ kind: frameKind.retry, word: 0, body: cookie });
    const answer = frameOf("the acceptor's first flight");
    if (answer === undefined) expect.fail("the acceptor has not answered");
    expect(answer).toMatchObject({ kind: frameKind.secure, word: withTerms });
    expect(parseTerms(answer.body)).toMatchObject(terms);
    expect(frameOf("the connector's last flight")).toMatchObject({
      kind: frameKind.secure,
      word: 0,
      body: flight,
    });
  });

  it("bind the keys to the hello as it was sent, and to the acceptor's terms", () => {
    const message = helloMessage(encode(packSecureHello(hello)));
    expect(Buffer.from(message).toString("hex")).toBe(vectors.messages.hello);
    const context = createHash("sha256").update(message).update(packTerms(terms)).digest("hex");
    expect(context).toBe(vectors.context);
  });
});
