/** The control message that opens a connection of libfabric's, from one who says to listen at that port. */
export function greeting(port = 4711): Buffer {
  const bytes = Buffer.alloc(40);
  bytes[0] = 3;
  bytes.writeUInt16BE(8, 2);
  bytes.writeBigUInt64LE(1n, 24);
  bytes.writeUInt16BE(port, 34);
  return bytes;
}

interface Fields {
  readonly operation: number;
  readonly flags?: number;
  readonly detail?: number;
  readonly runs?: number;
  readonly headerBytes?: number;
  readonly size?: number;
  readonly rest?: Buffer;
}

/** A message's header, and what follows it. */
export function message({
  operation,
  flags = 0,
  detail = 0,
  runs = 0,
  rest = Buffer.alloc(0),
  ...more
}: Fields): Buffer {
  const { headerBytes = 16 + 24 * runs, size = 16 + rest.byteLength } = more;
  const header = Buffer.alloc(16);
  header[0] = 3;
  header[1] = operation;
  header.writeUInt16LE(flags, 2);
  header[4] = detail;
  header[5] = runs;
  header[6] = headerBytes;
  header.writeBigUInt64LE(BigInt(size), 8);
  return Buffer.concat([header, rest]);
}
