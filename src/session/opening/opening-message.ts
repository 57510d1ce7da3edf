import { frameFault, frameHeaderBytes, frameKind, writeFrameHeader } from "../../wire/frame.ts";
import { parseReturnPath, parseVersions, type ReturnPath } from "../../wire/handshake.ts";
import {
  alignFrame,
  messageFault,
  messageHeaderBytes,
  Nonce,
  noNonce,
  unnumbered,
  writeMessageHeader,
} from "../../wire/message.ts";

/**
 * The messages of an opening by TLS, which are in the clear (docs/protocol.md, "Sealed sessions"). Each has one frame, and
 * the number 0: TLS itself finds out what was lost or changed.
 */

/** A hello that asks for a sealed session. It says only what an answer needs: the rest of the greeting comes sealed. */
export interface SecureHello extends ReturnPath {
  readonly versions: readonly [number, number];
  /** As in a greeting. */
  readonly repeats?: ReturnPath["nonce"] | undefined;
  /** Numbers of the ciphers that the connector accepts, the most wanted first. */
  readonly suites: readonly number[];
  /** The connector's first flight of TLS. */
  readonly flight: Uint8Array;
  /** What the acceptor has asked for by `retry`: it shows that the return path is the connector's. */
  readonly cookie?: Uint8Array | undefined;
}

/** What the acceptor says in the clear before its first flight. Keys depend on it, so nobody can change it unseen. */
export interface AcceptorTerms extends Omit<ReturnPath, "address"> {
  /** The number of the ciphers that the session has. */
  readonly suite: number;
}

/** The length of the acceptor's terms. */
export const acceptorTermsBytes = 24;
/** A `secure` frame with this word begins with the acceptor's terms. */
export const withTerms = 1;
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

export function packTerms({ session, nonce, messageBytes, suite }: AcceptorTerms): Uint8Array {
  const bytes = new Uint8Array(acceptorTermsBytes);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, session, true);
  view.setUint32(4, messageBytes, true);
  view.setBigUint64(8, nonce, true);
  view.setUint32(16, suite, true);
  return bytes;
}

/** The terms in the first bytes of a `secure` frame, or a sentence that names the fault. */
export function parseTerms(bytes: Uint8Array): AcceptorTerms | string {
  if (bytes.byteLength < acceptorTermsBytes) return "the acceptor's terms are cut off";
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  const path = parseReturnPath({
    ses: view.getUint32(0, true),
    msg: view.getUint32(4, true),
    non: view.getBigUint64(8, true),
    adr: noAddress,
  });
  return typeof path === "string" ? path : { ...path, suite: view.getUint32(16, true) };
}

/** A message of an opening, for the session that `path` names; a hello without it. */
export function openingMessage(
  kind: number,
  word: number,
  body: Uint8Array,
  path?: Pick<ReturnPath, "session" | "nonce">,
): Uint8Array {
  const bytes = messageHeaderBytes + frameHeaderBytes + alignFrame(body.byteLength);
  const message = new Uint8Array(bytes);
  const view = new DataView(message.buffer);
  const nonce = path === undefined ? noNonce : new Nonce(path.nonce);
  writeMessageHeader(view, 0, 1, bytes, path?.session ?? 0, nonce, unnumbered);
  writeFrameHeader(view, messageHeaderBytes, kind, 0, 0, 0, body.byteLength, word);
  message.set(body, messageHeaderBytes + frameHeaderBytes);
  return message;
}

/** What a message of an opening has beside the body of its frame. */
export const openingHeaderBytes = messageHeaderBytes + frameHeaderBytes;

/** The longest body of a frame in messages of this length. */
export const openingBodyBytes = (messageBytes: number): number => (messageBytes & ~7) - openingHeaderBytes;

/** A frame of an opening. */
export interface OpeningFrame {
  readonly kind: number;
  readonly word: number;
  /** A view of the message. */
  readonly body: Uint8Array;
}

/** The frame in a message of an opening, or a sentence that names the fault. */
export function readOpeningFrame(
  slab: Uint8Array,
  view: DataView,
  offset: number,
  bytes: number,
): OpeningFrame | string {
  const at = offset + messageHeaderBytes;
  const fault = messageFault(view, offset, bytes) || frameFault(view, at, offset + bytes);
  if (fault !== "") return fault;
  const bodyBytes = view.getUint32(at + 8, true);
  const start = at + frameHeaderBytes;
  if (view.getUint16(offset + 2, true) !== 1 || start + alignFrame(bodyBytes) !== offset + bytes)
    return "a message of an opening has one frame";
  if (view.getUint8(at + 1) !== 0) return "a frame of an opening has no flags";
  const kind = view.getUint8(at);
  if (kind !== frameKind.secure && kind !== frameKind.retry && kind !== frameKind.refuse)
    return `frame kind ${kind} arrived before the session was sealed`;
  const body = Uint8Array.prototype.subarray.call(slab, start, start + bodyBytes);
  return { kind, word: view.getUint32(at + 12, true), body };
}

const noAddress = new Uint8Array(0);
