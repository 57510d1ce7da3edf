// The numbers of the NBD protocol, as doc/proto.md of the NBD project has them. All of them are big-endian.

export const magic = {
  greeting: 0x4e42444d41474943n, // NBDMAGIC
  option: 0x49484156454f5054n, // IHAVEOPT
  optionReply: 0x0003e889045565a9n,
  request: 0x25609513,
  simpleReply: 0x67446698,
  chunk: 0x668e33ef,
} as const;

export const handshakeFlag = { fixedNewstyle: 1, noZeroes: 2 } as const;

export const option = {
  exportName: 1,
  abort: 2,
  list: 3,
  startTls: 5,
  info: 6,
  go: 7,
  structuredReply: 8,
  listMetaContext: 9,
  setMetaContext: 10,
} as const;

export const optionReply = {
  ack: 1,
  server: 2,
  info: 3,
  metaContext: 4,
  unsupported: 0x80000001,
  policy: 0x80000002,
  invalid: 0x80000003,
  tlsRequired: 0x80000005,
  unknown: 0x80000006,
} as const;

export const info = { export: 0, name: 1, description: 2, blockSize: 3 } as const;

export const transmissionFlag = {
  hasFlags: 1,
  readOnly: 2,
  flush: 4,
  fua: 8,
  trim: 32,
  writeZeroes: 64,
  df: 128,
  canMultiConn: 256,
  fastZero: 2048,
} as const;

export const command = {
  read: 0,
  write: 1,
  disconnect: 2,
  flush: 3,
  trim: 4,
  writeZeroes: 6,
  blockStatus: 7,
} as const;

export const commandFlag = { fua: 1, noHole: 2, df: 4, reqOne: 8, fastZero: 16 } as const;

export const chunkFlag = { done: 1 } as const;

export const chunk = { none: 0, data: 1, blockStatus: 5, error: 0x8001 } as const;

/** States of `base:allocation`. */
export const allocation = { hole: 1, zero: 2 } as const;

export const errno = {
  none: 0,
  perm: 1,
  io: 5,
  noMemory: 12,
  invalid: 22,
  noSpace: 28,
  overflow: 75,
  notSupported: 95,
  shutdown: 108,
} as const;

/** The longest option that a server reads. */
export const maxOptionBytes = 65_536;
/** The longest name of an export, and the longest query of a context. */
export const maxNameBytes = 4096;
/** The longest read or write: what clients may take for granted. */
export const maxRequestBytes = 32 * 1024 * 1024;
export const requestBytes = 28;
