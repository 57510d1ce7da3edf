/** The small object that every contender sends and gets back: a number, a name, and a text of 64 bytes. */
export interface SmallObject {
  readonly id: number;
  readonly name: string;
  readonly text: string;
}

/** The same as a message of Protocol Buffers. */
export const smallProto = {
  fields: {
    id: { type: "uint32", id: 1 },
    name: { type: "string", id: 2 },
    text: { type: "string", id: 3 },
  },
};

export const smallObject: SmallObject = {
  id: 4711,
  name: "cinnabar",
  text: "0123456789abcdef".repeat(4),
};

/** What one call carries, there and back. */
export const payloads = ["small", "1KiB", "64KiB"] as const;
export type Payload = (typeof payloads)[number];

/** Bytes that no codec can shorten or mistake for text. */
export function binary(payload: Exclude<Payload, "small">): Uint8Array {
  return Uint8Array.from({ length: payload === "1KiB" ? 1 << 10 : 1 << 16 }, (_, index) => index * 167 + 31);
}
