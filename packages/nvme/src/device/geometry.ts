import { checkedBy, fail, integer } from "cinnabar/options";

/** The longest device: 2^53 bytes less one block of the largest kind. JavaScript counts exactly up to there. */
export const maxDeviceBytes = 2 ** 53 - 65_536;

/** The field `bytes` of a device's options. */
export const bytesField = integer(512, maxDeviceBytes);

/** The field `blockBytes` of a device's options. */
export const blockBytesField = checkedBy((where, name, value) => {
  const isPower = typeof value === "number" && Number.isInteger(Math.log2(value));
  if (!isPower || value < 512 || value > 65_536)
    fail(RangeError, where, name, "a power of two from 512 to 65536", value);
  return value as number;
}, 4096);
