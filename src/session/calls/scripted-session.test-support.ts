import { expect } from "vitest";
import { RpcError } from "../../base/errors/rpc-error.ts";
import type { EngineLimits } from "../../base/flow/engine-limits.ts";
import { defaultWindow, type WindowLimits } from "../../base/flow/in-flight-window.ts";
import { sessionParts } from "../../engine/session-parts.ts";
import { decodeAt } from "../../wire/decode-value.ts";
import { frameHeaderBytes, writeRendezvous } from "../../wire/frame.ts";
import { messageHeaderBytes, Nonce } from "../../wire/message.ts";
import { FakePort, type SentFrame } from "../connection/fake-port.test-support.ts";
import {
  FakeMethod,
  FakeServices,
  type FrameSpec,
  messageOf,
  peerGreeting,
} from "../connection/fake-services.test-support.ts";
import { Session, type SessionTerms } from "../connection/session.ts";
import { Exchange } from "./exchange.ts";

export const id = (generation: number, slot: number): number => ((generation << 20) | slot) >>> 0;
export const decoded = (frame: SentFrame | undefined): unknown =>
  frame === undefined || frame.body.byteLength === 0
    ? undefined
    : decodeAt(frame.body, 0, frame.body.byteLength);
export const gone = new RpcError({ code: "unavailable", message: "closed by us", origin: "local" });

export function setUp(
  limits: Partial<EngineLimits> = {},
  window: Partial<WindowLimits> = {},
  parts: SessionTerms["parts"] = sessionParts,
) {
  const host = new FakeServices(limits);
  const method = new FakeMethod();
  host.served.methods = [method];
  const port = new FakePort(8);
  const identity = { address: 4, index: 2, nonce: new Nonce(0x2222n), peerName: "the peer" };
  const terms = host.terms(parts);
  const session = new Session(terms, port, identity, { ...defaultWindow, ...window });
  const exchange = session.part(Exchange);
  const { outgoing, incoming } = exchange;
  const receive = (...frames: FrameSpec[]) => {
    const bytes = messageOf(2, 0x2222n, frames);
    session.receive(port.receive(bytes), bytes.byteLength);
    session.flush();
  };
  const kinds = () => port.frames.map((frame) => frame.kind);
  return { host, method, port, session, exchange, outgoing, incoming, receive, kinds };
}

/** A session that said hello and has not been answered. */
export function opening(limits?: Partial<EngineLimits>) {
  const all = setUp(limits);
  const terms = { replyTo: new Uint8Array(16), answerMs: 1000, totalMs: 1000 };
  const opened = all.session.opening.connect(terms).then(
    () => undefined,
    (error: RpcError) => error,
  );
  return { ...all, opened };
}

/** A session that accepted a hello. */
export function open(
  limits?: Partial<EngineLimits>,
  change: Partial<typeof peerGreeting> = {},
  window?: Partial<WindowLimits>,
  parts?: SessionTerms["parts"],
) {
  const all = setUp(limits, window, parts);
  all.session.opening.accept({ ...peerGreeting, ...change });
  all.port.sent.length = 0;
  all.host.watched.length = 0;
  return all;
}

export function expectFault({ host, session }: ReturnType<typeof setUp>, text: string): void {
  expect(session.state).toBe("ended");
  expect(host.counters.malformed).toBe(1);
  expect(host.ended).toHaveLength(1);
  expect(host.ended[0]?.reason?.message).toContain(`the peer broke the protocol: ${text}`);
}

export function rendezvousBody(bytes: number, key = 7n): Uint8Array {
  const body = new Uint8Array(24);
  writeRendezvous(new DataView(body.buffer), 0, { key, address: 0n, bytes });
  return body;
}

/** Lets the promises of a pull run. */
export const settled = () => new Promise(setImmediate);

export function messageBody(value: unknown): Uint8Array {
  const bytes = messageOf(0, 0n, [{ kind: 1, body: value }]);
  const at = messageHeaderBytes + frameHeaderBytes;
  return bytes.slice(at, at + new DataView(bytes.buffer).getUint32(messageHeaderBytes + 8, true));
}
