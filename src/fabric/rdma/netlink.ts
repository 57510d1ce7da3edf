/**
 * Netlink messages in the kernel's answers (linux/netlink.h). Every length is checked. Little-endian machines only, as
 * all of Cinnabar.
 */

const headerBytes = 16;
const attributeHeaderBytes = 4;
const isError = 2;
const isDone = 3;
/** The upper two bits of an attribute's type say how it is nested and stored. */
const typeMask = 0x3fff;

/** Attributes by their type; repeated attributes are in their order. */
export type Attributes = ReadonlyMap<number, readonly Buffer[]>;

export interface NetlinkAnswer {
  /** The attributes of each message. */
  readonly messages: readonly Attributes[];
  /** The kernel's error number if it gave one, 0 otherwise. */
  readonly code: number;
}

/** The kernel's answer. Bytes after a message or an attribute that does not fit are left out. */
export function parseAnswer(bytes: Buffer): NetlinkAnswer {
  const messages: Attributes[] = [];
  let at = 0;
  while (at + headerBytes <= bytes.byteLength) {
    const length = bytes.readUInt32LE(at);
    const type = bytes.readUInt16LE(at + 4);
    if (length < headerBytes || length > bytes.byteLength - at || type === isDone) break;
    const body = bytes.subarray(at + headerBytes, at + length);
    if (type === isError) return { messages, code: body.byteLength < 4 ? 0 : Math.abs(body.readInt32LE(0)) };
    messages.push(parseAttributes(body));
    at += aligned(length);
  }
  return { messages, code: 0 };
}

export function parseAttributes(bytes: Buffer): Attributes {
  const attributes = new Map<number, Buffer[]>();
  let at = 0;
  while (at + attributeHeaderBytes <= bytes.byteLength) {
    const length = bytes.readUInt16LE(at);
    if (length < attributeHeaderBytes || length > bytes.byteLength - at) break;
    const type = bytes.readUInt16LE(at + 2) & typeMask;
    const value = bytes.subarray(at + attributeHeaderBytes, at + length);
    const known = attributes.get(type);
    if (known === undefined) attributes.set(type, [value]);
    else known.push(value);
    at += aligned(length);
  }
  return attributes;
}

/** The attributes inside each attribute of that type. */
export function nested(attributes: Attributes, type: number): Attributes[] {
  return (attributes.get(type) ?? []).map(parseAttributes);
}

/** A number of one to four bytes; undefined without the attribute. */
export function numberIn(attributes: Attributes, type: number): number | undefined {
  const value = attributes.get(type)?.[0];
  if (value === undefined || value.byteLength === 0) return undefined;
  return value.readUIntLE(0, Math.min(value.byteLength, 4));
}

/** A text up to its zero; "" without the attribute. */
export function textIn(attributes: Attributes, type: number): string {
  const value = attributes.get(type)?.[0];
  if (value === undefined) return "";
  const end = value.indexOf(0);
  return value.toString("latin1", 0, end < 0 ? value.byteLength : end);
}

/**
 * "host:port" of a socket address; "" without an address, or for an address without a port, such as the peer of a
 * listening port.
 */
export function addressIn(attributes: Attributes, type: number): string {
  const value = attributes.get(type)?.[0];
  if (value === undefined || value.byteLength < 8) return "";
  const family = value.readUInt16LE(0);
  const port = value.readUInt16BE(2);
  if (port === 0) return "";
  if (family === 2) return `${[...value.subarray(4, 8)].join(".")}:${port}`;
  if (family !== 10 || value.byteLength < 24) return "";
  const groups = Array.from({ length: 8 }, (_, i) => value.readUInt16BE(8 + 2 * i).toString(16));
  // The form of URLs: the longest run of zeros is left out.
  return `${new URL(`http://[${groups.join(":")}]`).hostname}:${port}`;
}

function aligned(length: number): number {
  return (length + 3) & ~3;
}
