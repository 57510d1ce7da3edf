/** A message as the vectors describe it: plain JSON, with a tag for what JSON cannot say. */
export interface Vector {
  readonly name: string;
  /** Which side sends it: the one that connected, the one that accepted, or either. */
  readonly from: "connector" | "acceptor" | "either";
  readonly hex: string;
  readonly session: number;
  readonly nonce: number;
  readonly frames: readonly VectorFrame[];
}

export interface VectorFrame {
  readonly kind: number;
  readonly flags: number;
  readonly method: number;
  readonly callId: number;
  readonly word: number;
  /** What stands before the body of a request that may be tried again. */
  readonly identity?: IdentityMeaning;
  /** Absent: no body. `{ "$overflow": … }`: a descriptor of a body that must be pulled. Otherwise a msgpack value. */
  readonly body?: unknown;
}

export interface IdentityMeaning {
  readonly caller: string;
  readonly sequence: number;
  readonly settled: number;
  readonly incarnation: string;
}

/** How a region stands in a vector. */
export class RegionMeaning {
  readonly key: bigint;
  readonly address: bigint;
  readonly bytes: number;
  readonly access: number;

  constructor(key: bigint, address: bigint, bytes: number, access: number) {
    this.key = key;
    this.address = address;
    this.bytes = bytes;
    this.access = access;
  }
}

/** The JavaScript value that a vector's JSON stands for. */
export function fromJson(json: unknown): unknown {
  if (Array.isArray(json)) return json.map(fromJson);
  if (typeof json !== "object" || json === null) return json;
  const tagged = json as Record<string, unknown>;
  if (typeof tagged.$bytes === "string") return Uint8Array.from(Buffer.from(tagged.$bytes, "hex"));
  if (typeof tagged.$bigint === "string") return BigInt(tagged.$bigint);
  if (typeof tagged.$time === "string") return new Date(tagged.$time);
  if ("$undefined" in tagged) return undefined;
  if ("$region" in tagged) {
    const { key, address, bytes, access } = tagged.$region as Record<string, string | number>;
    return new RegionMeaning(
      BigInt(key as string),
      BigInt(address as string),
      bytes as number,
      access as number,
    );
  }
  return Object.fromEntries(Object.entries(tagged).map(([key, value]) => [key, fromJson(value)]));
}
