import { leastDecodedBytes } from "../base/flow/engine-limits.ts";
import type { Port } from "../fabric/port.ts";
import { decodeAt } from "./decode-value.ts";
import { frameFault, frameFlag, frameHeaderBytes, frameKind, writeHead } from "./frame.ts";
import { parseReturnPath, parseVersions, type ReturnPath } from "./handshake.ts";
import { alignFrame, messageHeaderBytes, noNonce, unnumbered, writeMessageHeader } from "./message.ts";

/**
 * The content of a message without a session: a value that should be a greeting, or a sentence that names the fault.
 */
export type HelloBody = { readonly value: unknown } | string;

/** Reads a message without a session. Its header has been checked. Never throws. */
export function readHello(port: Port, offset: number, bytes: number): HelloBody {
  const view = port.slabView;
  const at = offset + messageHeaderBytes;
  const fault = frameFault(view, at, offset + bytes);
  if (fault !== "") return fault;
  if (view.getUint8(at) !== frameKind.hello) return "message without a session is no hello";
  if ((view.getUint8(at + 1) & frameFlag.rendezvous) !== 0) return "hello has a rendezvous body";
  const start = at + frameHeaderBytes;
  const bodyBytes = view.getUint32(at + 8, true);
  if (view.getUint16(offset + 2, true) !== 1 || start + alignFrame(bodyBytes) !== offset + bytes)
    return "hello is not alone in its message";
  try {
    return { value: decodeAt(port.slab, start, start + bodyBytes, undefined, false, leastDecodedBytes) };
  } catch (error) {
    return `hello: ${(error as Error).message}`;
  }
}

/** The whole message of a hello with this body, as an outbox sends it: the keys of a sealed session are bound to it. */
export function helloMessage(body: Uint8Array): Uint8Array {
  const bytes = messageHeaderBytes + frameHeaderBytes + alignFrame(body.byteLength);
  const message = new Uint8Array(bytes);
  const view = new DataView(message.buffer);
  writeMessageHeader(view, 0, 1, bytes, 0, noNonce, unnumbered);
  writeHead(
    view,
    messageHeaderBytes,
    { kind: frameKind.hello, method: 0, callId: 0, word: 0 },
    0,
    body.byteLength,
  );
  message.set(body, messageHeaderBytes + frameHeaderBytes);
  return message;
}

/**
 * A hello that asks for a sealed session. It has only the data that an answer needs: the rest of the greeting is
 * sealed.
 */
export interface SecureHello extends ReturnPath {
  readonly versions: readonly [number, number];
  /** As in a greeting. */
  readonly repeats?: ReturnPath["nonce"] | undefined;
  /** Numbers of the ciphers that the connector accepts, in order of preference. */
  readonly suites: readonly number[];
  /** The connector's first flight of TLS. */
  readonly flight: Uint8Array;
  /** The cookie from the acceptor's `retry`: it proves that the return path is the connector's. */
  readonly cookie?: Uint8Array | undefined;
}

/** The length of a cookie. */
export const cookieBytes = 16;

const maxSuites = 16;

export function packSecureHello(hello: SecureHello): Record<string, unknown> {
  const { versions, session, nonce, address, messageBytes, repeats, suites, flight, cookie } = hello;
  return {
    v: versions,
    ses: session,
    non: nonce,
    adr: address,
    msg: messageBytes,
    aut: { s: suites, t: flight, ...(cookie === undefined ? {} : { c: cookie }) },
    ...(repeats === undefined ? {} : { rep: repeats }),
  };
}

/** Whether the decoded body of a hello asks for a sealed session. */
export function asksForSeal(body: unknown): boolean {
  return (body as { aut?: unknown } | null | undefined)?.aut !== undefined;
}

/** The hello in a decoded body, or a sentence that names the fault. */
export function parseSecureHello(body: unknown): SecureHello | string {
  const path = parseReturnPath(body);
  if (typeof path === "string") return path;
  const opening = parseVersions(body);
  if (typeof opening === "string") return opening;
  const { aut } = body as { readonly aut: unknown };
  if (typeof aut !== "object" || aut === null) return "greeting has a malformed offer of security";
  const { s, t, c } = aut as Record<string, unknown>;
  if (!Array.isArray(s) || s.length > maxSuites || !s.every((suite) => Number.isInteger(suite)))
    return "greeting names no suites";
  if (!(t instanceof Uint8Array) || t.byteLength === 0) return "greeting has no first flight of TLS";
  if (c !== undefined && !(c instanceof Uint8Array && c.byteLength === cookieBytes))
    return "greeting has a malformed cookie";
  return { ...path, ...opening, suites: s as number[], flight: t, cookie: c };
}

/** The acceptor's terms, sent in the clear before its first flight. Keys depend on them, so a change is detected. */
export interface AcceptorTerms extends Omit<ReturnPath, "address"> {
  /** The number of the session's ciphers. */
  readonly suite: number;
}

/** The length of the acceptor's terms. */
export const acceptorTermsBytes = 24;
/** A `secure` frame with this word begins with the acceptor's terms. */
export const withTerms = 1;

export function packTerms({ session, nonce, messageBytes, suite }: AcceptorTerms): Uint8Array {
  const bytes = new Uint8Array(acceptorTermsBytes);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, session, true);
  view.setUint32(4, messageBytes, true);
  view.setBigUint64(8, nonce, true);
  view.setUint32(16, suite, true);
  return bytes;
}

/** The terms in the first bytes of a `secure` frame, with an empty address, or a sentence that names the fault. */
export function parseTerms(bytes: Uint8Array): (AcceptorTerms & ReturnPath) | string {
  if (bytes.byteLength < acceptorTermsBytes) return "the acceptor's terms are cut off";
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  const path = parseReturnPath({
    ses: view.getUint32(0, true),
    msg: view.getUint32(4, true),
    non: view.getBigUint64(8, true),
    adr: new Uint8Array(0),
  });
  return typeof path === "string" ? path : { ...path, suite: view.getUint32(16, true) };
}
