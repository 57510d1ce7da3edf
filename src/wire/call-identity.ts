/**
 * The identity of a request across sessions: 32 bytes before the body of a request with the flag `identity`.
 *
 *   0  u64  caller: unpredictable; the caller derives it for this callee, and sends it to no other
 *   8  u64  sequence: 1 for the caller's first call, and higher for each later one
 *   16 u64  settled: no sequence below it will be sent again
 *   24 u64  incarnation: of the callee that may have received this request before; 0 if none has
 */
export const callIdentityBytes = 32;

/** The identity of a call. All attempts that may repeat it carry the same one. */
export interface CallIdentity {
  readonly caller: bigint;
  readonly sequence: number;
  readonly settled: number;
  readonly incarnation: bigint;
}

export function writeCallIdentity(identity: CallIdentity): Uint8Array {
  const bytes = new Uint8Array(callIdentityBytes);
  const view = new DataView(bytes.buffer);
  view.setBigUint64(0, identity.caller, true);
  view.setBigUint64(8, BigInt(identity.sequence), true);
  view.setBigUint64(16, BigInt(identity.settled), true);
  view.setBigUint64(24, identity.incarnation, true);
  return bytes;
}

/** The identity at `offset` of a body that ends at `end`, or a sentence that names the fault. */
export function readCallIdentity(view: DataView, offset: number, end: number): CallIdentity | string {
  if (end - offset < callIdentityBytes) {
    return `call identity has ${end - offset} bytes, not ${callIdentityBytes}`;
  }
  const sequence = view.getBigUint64(offset + 8, true);
  if (sequence === 0n || sequence > maxSequence) return `call identity has sequence ${sequence}`;
  const settled = view.getBigUint64(offset + 16, true);
  // This call has not settled, so the lowest open sequence is at most its own.
  if (settled > sequence)
    return `call identity has sequence ${sequence}, and ${settled} as the lowest open one`;
  return {
    caller: view.getBigUint64(offset, true),
    sequence: Number(sequence),
    settled: Number(settled),
    incarnation: view.getBigUint64(offset + 24, true),
  };
}

const maxSequence = BigInt(Number.MAX_SAFE_INTEGER);
