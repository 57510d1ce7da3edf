/**
 * How a region travels inside a message: the payload of msgpack extension 0x7d.
 *
 *   0  u64  key of the memory region
 *   8  u64  remote address of its first byte, as the provider wants it (virtual address or offset)
 *   16 u64  length in bytes
 *   24 u8   access: 1 the receiver may read, 2 it may write, 3 both
 *   25 …31  zero, room for a version
 */
export const regionExtension = 0x7d;
export const regionDescriptorBytes = 32;

export interface RegionDescriptor {
  readonly key: bigint;
  readonly address: bigint;
  readonly bytes: number;
  /** 1 read, 2 write, 3 both. */
  readonly access: number;
}

export function writeRegionDescriptor(descriptor: RegionDescriptor): Uint8Array {
  const bytes = new Uint8Array(regionDescriptorBytes);
  const view = new DataView(bytes.buffer);
  view.setBigUint64(0, descriptor.key, true);
  view.setBigUint64(8, descriptor.address, true);
  view.setBigUint64(16, BigInt(descriptor.bytes), true);
  view.setUint8(24, descriptor.access);
  return bytes;
}

/** The descriptor in an extension's payload, or a sentence on what is wrong with it. */
export function readRegionDescriptor(bytes: Uint8Array): RegionDescriptor | string {
  if (bytes.byteLength !== regionDescriptorBytes) return `region descriptor has ${bytes.byteLength} bytes`;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const access = view.getUint8(24);
  if (access < 1 || access > 3) return `region descriptor has access ${access}`;
  for (let i = 25; i < regionDescriptorBytes; i++) {
    if (view.getUint8(i) !== 0) return "region descriptor has bytes this version does not know";
  }
  const length = view.getBigUint64(16, true);
  if (length > BigInt(Number.MAX_SAFE_INTEGER)) return `region descriptor has length ${length}`;
  const address = view.getBigUint64(8, true);
  if (address + length > 0xffff_ffff_ffff_ffffn) return "region descriptor runs past the end of memory";
  return { key: view.getBigUint64(0, true), address, bytes: Number(length), access };
}
