import { Engine, implement, RpcError, type SecurityOptions, service, unary } from "cinnabar";
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from "vitest";
import { z } from "zod";
import { messageOf, packedGreeting } from "../../src/session/connection/fake-services.test-support.ts";
import { decodeAt } from "../../src/wire/decode-value.ts";
import { encode } from "../../src/wire/encode-value.ts";
import { frameHeaderBytes, frameKind } from "../../src/wire/frame.ts";
import { helloMessage } from "../../src/wire/hello.ts";
import { messageHeaderBytes } from "../../src/wire/message.ts";
import { untilTurn } from "../matrix/wait.ts";
import { Authority } from "./support/authority.ts";
import { secured } from "./support/engines.ts";
import { anyUrl } from "./support/fabric.ts";
import { NetworkPath, nameOf, type PassingMessage } from "./support/network-path.ts";

const Who = service("who.v1", { ask: unary({ output: z.any() }) });
const asked: unknown[] = [];
const who = implement(Who, {
  ask: async (_, { identity }) => {
    asked.push(identity);
    return { ...identity };
  },
});
let ca: Authority;

beforeAll(() => {
  ca = Authority.create("ca");
});

afterAll(() => ca.remove());

async function open(name: string, more: Partial<SecurityOptions> = {}, listen?: string): Promise<Engine> {
  const engine = await Engine.open({
    ...(listen === undefined ? {} : { listen, serve: [who] }),
    security: secured(ca, name, {}, more),
    connectTimeoutMs: 30_000,
  });
  onTestFinished(() => engine.close());
  return engine;
}

const serve = (more: Partial<SecurityOptions> = {}) => open("server.example", more, anyUrl);

type Body = Record<string, unknown> & { aut: { s: number[] } };

/** The same message with another body. */
function rewritten({ bytes }: PassingMessage, change: (body: Body) => unknown): Uint8Array {
  const length = new DataView(bytes.buffer).getUint32(32, true);
  const start = messageHeaderBytes + frameHeaderBytes;
  return helloMessage(encode(change(decodeAt(bytes, start, start + length) as Body)));
}

/** Where the connector waits for an answer to its hello. */
function connectorOf({ bytes }: PassingMessage) {
  const view = new DataView(bytes.buffer);
  return { session: view.getUint32(16, true), nonce: view.getBigUint64(8, true) };
}

/**
 * Connects while each message of this name is changed on the way, and gives how the connect ended. It ends by itself, or
 * is ended once the acceptor's welcome has come and has not opened: what would be left is to wait for it.
 */
async function connectWith(
  name: "hello" | "answer",
  change: (message: PassingMessage) => Uint8Array,
  server: Engine,
): Promise<RpcError> {
  const client = await open("client.example");
  let changed = 0;
  using path = new NetworkPath((message) => {
    if (nameOf(message) !== name) return [message.bytes];
    changed++;
    return [change(message)];
  });
  let error: unknown;
  const connecting = client.connect(server.urls[0] as string).then(
    () => expect.fail("the connect went through"),
    (reason: unknown) => {
      error = reason;
    },
  );
  await untilTurn(() => error !== undefined || client.stats().counters.messagesForged > 0, "an end");
  const forged = client.stats().counters.messagesForged;
  await client.close();
  await connecting;
  expect(error).toBeInstanceOf(RpcError);
  if (error instanceof RpcError && forged > 0) expect(error.code).toBe("unavailable");
  expect(changed).toBeGreaterThan(0);
  expect(path.attempts.filter(({ isOpen }) => isOpen)).toEqual([]);
  await vi.waitFor(
    () => expect(server.stats()).toMatchObject({ sessions: 0, security: { openHandshakes: 0 } }),
    30_000,
  );
  return error as RpcError;
}

const connectWithHello = (change: (body: Body) => unknown, server: Engine): Promise<RpcError> =>
  connectWith("hello", (message) => rewritten(message, change), server);

describe("a hello that somebody changes on the way", () => {
  it.each([
    ["versions of the future", [3, 4], "peer speaks protocol 3 to 4, this side 2"],
    ["versions of the past", [1, 1], "peer speaks protocol 1 to 1, this side 2"],
  ])("to %s is refused by name", async (_, v, text) => {
    const error = await connectWithHello((body) => ({ ...body, v }), await serve());
    expect(error).toMatchObject({ code: "unimplemented", message: expect.stringContaining(text) });
  });

  it.each([
    ["more versions", (body: Body) => ({ ...body, v: [1, 3] })],
    ["fewer suites", (body: Body) => ({ ...body, aut: { ...body.aut, s: [2] } })],
    ["suites in another order", (body: Body) => ({ ...body, aut: { ...body.aut, s: [2, 1] } })],
    ["another return path", (body: Body) => ({ ...body, msg: 4096 })],
    ["a field that means nothing", (body: Body) => ({ ...body, aut: { ...body.aut, x: 1 } })],
  ])("to %s leads to other keys, and no session opens", async (_, change) => {
    const server = await serve();
    const error = await connectWithHello(change, server);
    expect(error.code).toBe("unavailable");
    // TLS itself was not touched, so the acceptor had a handshake, and a welcome that nobody could open.
    expect(server.stats().security.handshakes).toBeGreaterThan(0);
  });

  it("to suites that the acceptor does not have is refused", async () => {
    const error = await connectWithHello(
      (body) => ({ ...body, aut: { ...body.aut, s: [99] } }),
      await serve(),
    );
    expect(error).toMatchObject({ message: expect.stringContaining("no cipher is accepted by both sides") });
  });

  it("to a plain one is refused, and answered in the clear by nobody who speaks to the connector", async () => {
    const plain = (body: Body) => {
      const { v, ses, non, adr, msg } = body;
      return { ...packedGreeting(), v, ses, non, adr, msg };
    };
    const strict = await connectWithHello(plain, await serve());
    expect(strict).toMatchObject({
      code: "unauthenticated",
      message: expect.stringContaining("sealed sessions"),
    });
    asked.length = 0;
    // Such an acceptor welcomes it in the clear, and the connector takes no such welcome.
    const lenient = await serve({ allowPlain: true });
    const error = await connectWithHello(plain, lenient);
    expect(error).toMatchObject({ code: "internal" });
    expect(error.message).toContain("arrived before the session was sealed");
    expect(asked).toEqual([]);
  });
});

describe("an answer that somebody changes on the way", () => {
  it("to a welcome in the clear ends the connect", async () => {
    const welcome = (message: PassingMessage) => {
      const { session, nonce } = connectorOf(message);
      return messageOf(session, nonce, [{ kind: frameKind.welcome, body: packedGreeting() }]);
    };
    const error = await connectWith("answer", welcome, await serve());
    expect(error).toMatchObject({
      code: "internal",
      message: expect.stringContaining("arrived before the session was sealed"),
    });
  });

  it("to the refusal of an acceptor of another version ends the connect with its words", async () => {
    const refusal = (message: PassingMessage) => {
      const { session, nonce } = connectorOf(message);
      const body = { m: "peer speaks protocol 2 to 2, this side 3" };
      return messageOf(session, nonce, [{ kind: frameKind.refuse, word: 12, body }]);
    };
    const error = await connectWith("answer", refusal, await serve());
    expect(error).toMatchObject({ code: "unimplemented", message: expect.stringContaining("this side 3") });
  });

  it.each([
    ["another suite of those that were offered", 2],
    ["a suite that was not offered", 99],
  ])("to %s ends the connect", async (_, suite) => {
    const terms = ({ bytes }: PassingMessage) => {
      const copy = Uint8Array.from(bytes);
      const terms = messageHeaderBytes + frameHeaderBytes;
      new DataView(copy.buffer).setUint32(terms + 16, suite, true);
      return copy;
    };
    await connectWith("answer", terms, await serve());
  });
});
