import { expect } from "vitest";
import { RpcError } from "../errors/rpc-error.ts";
import { decodeAt } from "../wire/codec.ts";
import { writeOverflow } from "../wire/frame.ts";
import {
  FakeHost,
  FakeMethod,
  type FrameSpec,
  messageOf,
  packedGreeting,
  peerGreeting,
} from "./fake-host.test-support.ts";
import { FakePort, type SentFrame } from "./fake-port.test-support.ts";
import { defaultWindow, type WindowLimits } from "./in-flight-window.ts";
import type { SessionLimits } from "./limits.ts";
import { Session } from "./session.ts";

export const id = (generation: number, slot: number): number => ((generation << 20) | slot) >>> 0;
export const decoded = (frame: SentFrame | undefined): unknown =>
  frame === undefined || frame.body.byteLength === 0
    ? undefined
    : decodeAt(frame.body, 0, frame.body.byteLength);
export const gone = new RpcError({ code: "unavailable", message: "closed by us", origin: "local" });

export function setUp(limits: Partial<SessionLimits> = {}, window: Partial<WindowLimits> = {}) {
  const host = new FakeHost(limits);
  const method = new FakeMethod();
  host.methods = [method];
  const port = new FakePort(8);
  const session = new Session(host, port, 4, 2, 0x2222, "the peer", { ...defaultWindow, ...window });
  const receive = (...frames: FrameSpec[]) => {
    const bytes = messageOf(2, 0x2222, frames);
    session.receive(port.receive(bytes), bytes.byteLength);
    session.flush();
  };
  const kinds = () => port.frames.map((frame) => frame.kind);
  return { host, method, port, session, receive, kinds };
}

/** A session that said hello and has not been answered. */
export function opening(limits?: Partial<SessionLimits>) {
  const all = setUp(limits);
  const opened = all.session.connect(packedGreeting()).then(
    () => undefined,
    (error: RpcError) => error,
  );
  return { ...all, opened };
}

/** A session that accepted a hello. */
export function open(
  limits?: Partial<SessionLimits>,
  change: Partial<typeof peerGreeting> = {},
  window?: Partial<WindowLimits>,
) {
  const all = setUp(limits, window);
  all.session.accept({ ...peerGreeting, ...change }, packedGreeting());
  all.port.sent.length = 0;
  return all;
}

export function expectFault({ host, session }: ReturnType<typeof setUp>, text: string): void {
  expect(session.state).toBe("ended");
  expect(host.counters.malformed).toBe(1);
  expect(host.ended).toHaveLength(1);
  expect(host.ended[0]?.reason?.message).toContain(`the peer broke the protocol: ${text}`);
}

export function overflowBody(bytes: number, key = 7n): Uint8Array {
  const body = new Uint8Array(24);
  writeOverflow(new DataView(body.buffer), 0, { key, address: 0n, bytes });
  return body;
}

/** Lets the promises of a pull run. */
export const settled = () => new Promise(setImmediate);

export function messageBody(value: unknown): Uint8Array {
  const bytes = messageOf(0, 0, [{ kind: 1, body: value }]);
  return bytes.slice(32, 32 + new DataView(bytes.buffer).getUint32(24, true));
}
