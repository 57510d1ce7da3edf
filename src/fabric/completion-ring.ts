/**
 * Layout of the completion ring: one ArrayBuffer written by the port (native or mem) and read by JavaScript as a
 * Uint32Array.
 *
 *   word 0   tail: entries ever written, mod 2^32; only the port writes it
 *   word 1   head: entries ever consumed, mod 2^32; only JavaScript writes it
 *   word 2   lost: microseconds that spins waited for the processor after they yielded it, mod 2^32; only the port writes
 *   word 3   caught: spins that ended with an entry, mod 2^32; only the port writes it
 *   word 4…15 reserved, zero
 *   then `ringEntries` entries of `entryWords` words:
 *     0 kind            one of `completion`
 *     1 status          0, or a positive libfabric error number
 *     2 token           message: byte offset of the receive slot in the slab; sent: byte offset of the send slot;
 *                       or `firstParked` and more for a parked message; parked: byte offset of the send slot;
 *                       transfer: the token given to read/write; peerGone, disconnected: the address index;
 *                       putNotification: the lower half of its data;
 *                       turnedAway: connections that the port refused so far for lack of descriptors
 *     3 bytes           message: its length; transfer: bytes that certainly moved; putNotification: bytes written, 0 if
 *                       unknown
 *                       (net of libfabric 1.17); turnedAway: connections so far whose bytes were not libfabric's;
 *                       otherwise 0
 *     4 providerError   the provider's own error number (fi_cq_err_entry.prov_errno), 0 if none
 *     5 high            putNotification: its data's upper half; parked: the token of the `sent` that follows;
 *                       otherwise 0
 *     6…7 reserved, zero
 *
 * A message's receive slot belongs to JavaScript until head has passed its entry and `progress` is called again.
 */
export const ringEntries = 1024; // a power of two
export const entryWords = 8;
export const headerWords = 16;
export const ringBytes = (headerWords + ringEntries * entryWords) * 4;

export const completion = {
  message: 1,
  sent: 2,
  transfer: 3,
  peerGone: 4,
  putNotification: 5,
  turnedAway: 6,
  /** The message waits elsewhere, and its send slot is free again. */
  parked: 7,
  /** The connection with a peer has ended. */
  disconnected: 8,
} as const;

/** Tokens of parked messages begin here. */
export const firstParked = 2 ** 31;
