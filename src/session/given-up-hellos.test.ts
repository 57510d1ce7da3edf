import { describe, expect, it, vi } from "vitest";
import type { RpcError } from "../errors/rpc-error.ts";
import { frameFlag, frameKind } from "../wire/frame.ts";
import {
  FakeHost,
  type FrameSpec,
  messageOf,
  packedGreeting,
  peerGreeting,
} from "./fake-host.test-support.ts";
import { FakePort } from "./fake-port.test-support.ts";
import { decoded, overflowBody } from "./scripted-session.test-support.ts";
import type { Session } from "./session.ts";
import { SessionTable } from "./session-table.ts";

const way = Uint8Array.of(1, 2, 3);
const welcome: FrameSpec = { kind: frameKind.welcome, body: packedGreeting({ address: new Uint8Array(0) }) };

/** A table that says hellos and hears of nobody in time. */
function setUp() {
  const host = new FakeHost();
  const table = new SessionTable(host);
  vi.spyOn(host, "onSessionEnded").mockImplementation((session) => table.remove(session));
  const port = new FakePort(16);
  const admit = vi.spyOn(port, "admit");
  /** A hello that is given up; what a message that answers it must carry. */
  const giveUp = async (): Promise<{ index: number; nonce: number }> => {
    const opened = table.connect(port, way, way, "the peer", 1000).catch((error: RpcError) => error);
    const { index, nonce } = [...table][0] as Session;
    host.clock.advance(1000);
    expect(((await opened) as RpcError).message).toContain("did not answer within 1000 ms");
    port.complete();
    port.sent.length = 0;
    admit.mockClear();
    return { index, nonce };
  };
  const receive = (to: { index: number; nonce: number }, ...frames: FrameSpec[]) => {
    const bytes = messageOf(to.index, to.nonce, frames);
    table.onMessage(port, port.receive(bytes), bytes.byteLength);
  };
  return { host, table, port, admit, giveUp, receive };
}

describe("a welcome that comes too late", () => {
  it("is answered by a goodbye to where the hello went, once", async () => {
    const { host, table, port, admit, giveUp, receive } = setUp();
    const hello = await giveUp();
    receive(hello, welcome, { kind: frameKind.credits, word: 8 });
    expect(admit.mock.calls).toEqual([[way]]);
    expect(port.sent).toMatchObject([{ session: peerGreeting.session, nonce: peerGreeting.nonce }]);
    const [goodbye] = port.frames;
    expect([port.frames.length, goodbye?.kind, goodbye?.word]).toEqual([1, frameKind.goodbye, 14]);
    expect(decoded(goodbye)).toEqual({ m: "its welcome came too late" });
    receive(hello, welcome);
    expect(port.frames).toHaveLength(1);
    port.complete();
    expect([table.size, port.forgotten.length, port.freeSlots]).toEqual([0, 2, 16]);
    expect(host.counters).toMatchObject({ strays: 2, sessionsRefused: 0, malformed: 0 });
  });

  it("is answered also when the next hello's session has its number", async () => {
    const { table, port, host, giveUp, receive } = setUp();
    const hello = await giveUp();
    const next = table.connect(port, way, way, "the peer", 1000);
    expect([...table].map(({ index }) => index)).toEqual([hello.index]);
    port.sent.length = 0;
    receive(hello, welcome);
    expect(port.frames.map(({ kind }) => kind)).toEqual([frameKind.goodbye]);
    const [session] = [...table];
    receive(session as Session, welcome);
    await next;
    expect([session?.state, host.counters.sessionsOpened]).toEqual(["open", 1]);
  });

  it("is answered for the last 256 hellos", async () => {
    const { port, giveUp, receive } = setUp();
    const hellos = [];
    for (let i = 0; i < 257; i++) hellos.push(await giveUp());
    for (const hello of hellos.slice(0, 2)) receive(hello, welcome);
    expect(port.frames).toHaveLength(1);
  });

  it.each<[string, FrameSpec[]]>([
    ["that must be pulled", [{ ...welcome, flags: frameFlag.overflow, body: overflowBody(20_000) }]],
    ["without a way to answer", [{ ...welcome, body: 7 }]],
    ["that is no value", [{ ...welcome, body: Uint8Array.of(0xc1) }]],
    ["without a body", [{ kind: frameKind.welcome }]],
  ])("is not answered %s", async (_, frames) => {
    const { host, port, giveUp, receive } = setUp();
    receive(await giveUp(), ...frames);
    expect([port.frames.length, host.counters.strays]).toEqual([0, 1]);
  });
});

describe("a stray", () => {
  it.each<[string, FrameSpec[]]>([
    ["nothing", []],
    ...Object.entries(frameKind)
      .filter(([name]) => name !== "welcome")
      .map(([name, kind]): [string, FrameSpec[]] => [name, [{ kind, body: welcome.body }, welcome]]),
  ])("of %s is not answered, though its hello was given up", async (_, frames) => {
    const { host, port, giveUp, receive } = setUp();
    receive(await giveUp(), ...frames);
    expect([port.frames.length, host.counters.strays]).toEqual([0, 1]);
  });

  it("is not answered when it is a welcome to no hello, or comes by another port", async () => {
    const { host, table, port, giveUp, receive } = setUp();
    const hello = await giveUp();
    receive({ ...hello, nonce: (hello.nonce ^ 1) >>> 0 }, welcome);
    receive({ ...hello, index: hello.index + 1 }, welcome);
    const other = new FakePort();
    const bytes = messageOf(hello.index, hello.nonce, [welcome]);
    table.onMessage(other, other.receive(bytes), bytes.byteLength);
    expect([port.frames.length, other.frames.length, host.counters.strays]).toEqual([0, 0, 3]);
  });
});
