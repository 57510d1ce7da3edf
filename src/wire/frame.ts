/**
 * The frame header: sixteen bytes before each frame's body.
 *
 *   0  u8   kind
 *   1  u8   flags
 *   2  u16  method: the server's number of the method (request); one of `senderState` (ping and pong); items (credits of
 *           a stream); otherwise 0
 *   4  u32  call id, chosen by the caller; 0 in frames about the session
 *   8  u32  length of the body in bytes; the next frame begins at the next multiple of eight
 *   12 u32  word: request: milliseconds left; error, refuse and goodbye: status code; ping and pong: a sequence number;
 *           response: microseconds that the request waited before its handler started;
 *           for a stream, the number of its outputs;
 *           pulled: one of `rendezvousOwner`; credits: their number; items and the end of inputs: a number of items;
 *           credits of a stream: bytes; pulling: bytes; otherwise 0
 */
export const frameHeaderBytes = 16;

export const frameKind = {
  hello: 1,
  welcome: 2,
  refuse: 3,
  request: 4,
  response: 5,
  error: 6,
  cancel: 7,
  ping: 8,
  pong: 9,
  goodbye: 10,
  /**
   * The receiver of a rendezvous body has pulled it or abandons it: its memory is free. Word: one of `rendezvousOwner`.
   */
  pulled: 11,
  /** The service table of the connector. Sent once, after the welcome, if it serves anything. */
  services: 12,
  /** How many requests the receiver of this frame may have in flight, at most the number in the greeting. */
  credits: 13,
  /** An item that the caller of a stream sends. Word: its number, from 0. */
  input: 14,
  /** The caller of a stream sends no more items. Word: how many it has sent. */
  inputsEnd: 15,
  /** An item that the callee of a stream sends. Word: its number, from 0. */
  output: 16,
  /** How many more inputs the callee takes. Method: items; word: bytes. */
  inputCredits: 17,
  /** How many more outputs the caller takes. Method: items; word: bytes. */
  outputCredits: 18,
  /** Bytes of a TLS handshake, before the session is sealed. Word: 1 where the acceptor's terms precede them. */
  secure: 19,
  /** The acceptor of a TLS handshake requests the hello again, with this cookie. */
  retry: 20,
  /** One-way calls have been executed: they get no other terminal frame. */
  executed: 21,
  /** The sender reads rendezvous bodies. Word: how many more bytes it has read. Only for bodies that take long. */
  pulling: 22,
  /** The headers of a stream: the callee's metadata before its first item. The body is their block alone. */
  headers: 23,
} as const;

/** Every kind is below this number: the length of a session's table of handlers. */
export const frameKinds = 32;

/**
 * Which body a `pulled` frame confirms: the call ids of the two directions are not related. For the items of a
 * stream it is the oldest that has not been confirmed.
 */
export const rendezvousOwner = { response: 0, request: 1, output: 2, input: 3 } as const;

/** The state of the sender of a ping or a pong. Any other number counts as `serving`. */
export const senderState = {
  serving: 0,
  /** The sender answers every new request with `unavailable`. */
  draining: 1,
  /**
   * A keepalive of the guard: the sender lives, but its event loop is blocked. It does not change whether the sender
   * drains.
   */
  busy: 2,
} as const;

export const frameFlag = {
  /** The body is a rendezvous descriptor: the receiver pulls the body by RMA. */
  rendezvous: 1,
  /** The request carries regions: their memory stays pinned until its terminal frame arrives. */
  grants: 2,
  /** The identity of the request precedes its body: it may be retried, and the callee must recognise it then. */
  identity: 4,
  /** The request has the priority `control`. */
  control: 8,
  /** A block of metadata precedes the body, after the identity. On requests, responses and errors. */
  metadata: 32,
} as const;

const knownFlags =
  frameFlag.rendezvous | frameFlag.grants | frameFlag.identity | frameFlag.metadata | frameFlag.control;

/** Flags of requests only. */
const requestFlags = frameFlag.grants | frameFlag.identity | frameFlag.control;

/** One frame to be sent. */
export interface FrameHead {
  readonly kind: number;
  readonly method: number;
  readonly callId: number;
  readonly word: number;
  /** The flags that are known before the body. Default: none. */
  readonly flags?: number;
  /** A request without a waiting caller: it may share longer messages, as items do. Not sent. Default: false. */
  readonly isOneWay?: boolean;
  /** A control request or its answer: only the message limits its body in a message. Not sent. Default: false. */
  readonly isControl?: boolean;
}

/** A head that is refilled for each frame. */
export class ReusedHead implements FrameHead {
  kind: number;
  method = 0;
  callId = 0;
  word = 0;
  flags = 0;
  isOneWay = false;
  isControl = false;

  constructor(kind: number) {
    this.kind = kind;
  }
}

export function writeHead(
  view: DataView,
  offset: number,
  head: FrameHead,
  flags: number,
  bodyBytes: number,
): void {
  view.setUint8(offset, head.kind);
  view.setUint8(offset + 1, flags | (head.flags ?? 0));
  view.setUint16(offset + 2, head.method, true);
  view.setUint32(offset + 4, head.callId, true);
  view.setUint32(offset + 8, bodyBytes, true);
  view.setUint32(offset + 12, head.word, true);
}

/** The fault of the frame at `offset` of a message that ends at `end`, or "". */
export function frameFault(view: DataView, offset: number, end: number): string {
  if (end - offset < frameHeaderBytes) return "frame header is cut off";
  const kind = view.getUint8(offset);
  if (kind === 0 || kind >= frameKinds) return `frame kind ${kind} is unknown`;
  const flags = view.getUint8(offset + 1);
  if ((flags & ~knownFlags) !== 0) return `frame has unknown flags 0x${flags.toString(16)}`;
  if ((flags & frameFlag.metadata) !== 0 && (kind < frameKind.request || kind > frameKind.error))
    return `frame kind ${kind} may not have metadata`;
  if ((flags & requestFlags) !== 0 && kind !== frameKind.request)
    return `frame kind ${kind} has flags of a request: 0x${flags.toString(16)}`;
  const bodyBytes = view.getUint32(offset + 8, true);
  if (bodyBytes > end - offset - frameHeaderBytes) {
    return `frame body of ${bodyBytes} bytes runs past the end of its message`;
  }
  return "";
}

/**
 * Whether the frame at `offset` is a keepalive. It overtakes all frames that wait, the welcome too. It only means that
 * its sender lives.
 */
export function isKeepalive(view: DataView, offset: number): boolean {
  return view.getUint8(offset) === frameKind.pong && view.getUint16(offset + 2, true) === senderState.busy;
}

/** The length of a rendezvous descriptor: key, remote address, length; three u64. */
export const rendezvousBytes = 24;

/** The same where the body is sealed: a u64 and the tag follow. */
export const sealedRendezvousBytes = 48;

/** The place of a rendezvous body in its sender's memory. */
export interface RendezvousBody {
  readonly key: bigint;
  readonly address: bigint;
  readonly bytes: number;
  /** The data that opens a sealed body. */
  readonly seal?: { readonly counter: number; readonly tag: Uint8Array } | undefined;
}

export function writeRendezvous(view: DataView, offset: number, rendezvous: RendezvousBody): void {
  const { key, address, bytes, seal } = rendezvous;
  view.setBigUint64(offset, key, true);
  view.setBigUint64(offset + 8, address, true);
  view.setBigUint64(offset + 16, BigInt(bytes), true);
  if (seal === undefined) return;
  view.setBigUint64(offset + 24, BigInt(seal.counter), true);
  new Uint8Array(view.buffer, view.byteOffset + offset + 32, 16).set(seal.tag);
}

/** The descriptor of a body, as a frame carries it. */
export function rendezvousDescriptor(rendezvous: RendezvousBody): Uint8Array {
  const bytes = rendezvous.seal === undefined ? rendezvousBytes : sealedRendezvousBytes;
  const descriptor = new Uint8Array(bytes);
  writeRendezvous(new DataView(descriptor.buffer), 0, rendezvous);
  return descriptor;
}

/** The rendezvous descriptor in the body of a frame, or a sentence that names the fault. */
export function readRendezvous(
  view: DataView,
  offset: number,
  bodyBytes: number,
  maxBytes: number,
  isSealed = false,
): RendezvousBody | string {
  const wanted = isSealed ? sealedRendezvousBytes : rendezvousBytes;
  if (bodyBytes !== wanted) return `rendezvous descriptor has ${bodyBytes} bytes, not ${wanted}`;
  const bytes = view.getBigUint64(offset + 16, true);
  if (bytes === 0n) return "rendezvous body is empty";
  if (bytes > BigInt(maxBytes)) return `rendezvous body of ${bytes} bytes exceeds maxBodyBytes ${maxBytes}`;
  return {
    key: view.getBigUint64(offset, true),
    address: view.getBigUint64(offset + 8, true),
    bytes: Number(bytes),
    seal: isSealed ? readSeal(view, offset + rendezvousBytes) : undefined,
  };
}

function readSeal(view: DataView, offset: number): NonNullable<RendezvousBody["seal"]> {
  const tag = new Uint8Array(view.buffer, view.byteOffset + offset + 8, 16);
  // A copy: the message's slot is used again before the body has arrived.
  return { counter: Number(view.getBigUint64(offset, true)), tag: Uint8Array.from(tag) };
}
