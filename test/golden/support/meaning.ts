import type { HandleDescriptor } from "../../../src/wire/handle-descriptor.ts";
import type { RegionDescriptor, RegionSegment } from "../../../src/wire/region-descriptor.ts";

/** A message as the vectors describe it: plain JSON, with a tag for what JSON cannot say. */
export interface Vector {
  readonly name: string;
  /** Which side sends it: the one that connected, the one that accepted, or either. */
  readonly from: "connector" | "acceptor" | "either";
  readonly hex: string;
  readonly session: number;
  readonly nonce: string;
  readonly number: number;
  readonly frames: readonly VectorFrame[];
}

export type MetadataMeaning = string | { readonly $bytes: string };

export interface VectorFrame {
  readonly kind: number;
  readonly flags: number;
  readonly method: number;
  readonly callId: number;
  readonly word: number;
  /** What stands before the body of a request that may be tried again. */
  readonly identity?: IdentityMeaning;
  /** Named values: text, or bytes in hex as `{ "$bytes": … }`. */
  readonly metadata?: Readonly<Record<string, MetadataMeaning | readonly MetadataMeaning[]>>;
  /** Absent: no body. `{ "$rendezvous": … }`: a descriptor of a body that must be pulled. Otherwise a msgpack value. */
  readonly body?: unknown;
}

export interface IdentityMeaning {
  readonly caller: string;
  readonly sequence: number;
  readonly settled: number;
  readonly incarnation: string;
}

/** How a region stands in a vector. */
export class RegionMeaning implements RegionDescriptor {
  readonly access: number;
  readonly bytes: number;
  readonly segments: readonly RegionSegment[];

  constructor({ access, bytes, segments }: RegionDescriptor) {
    this.access = access;
    this.bytes = bytes;
    this.segments = segments;
  }
}

/** How a handle stands in a vector. */
export class HandleMeaning {
  readonly handle: HandleDescriptor;

  constructor(handle: HandleDescriptor) {
    this.handle = handle;
  }
}

/** As the descriptors, with what JSON cannot say in text. */
interface RegionJson {
  readonly access: number;
  readonly bytes: number;
  readonly segments: readonly { readonly key: string; readonly address: string; readonly bytes: number }[];
}
type HandleJson = Omit<HandleDescriptor, "token" | "incarnation"> &
  Readonly<Record<"token" | "incarnation", string>>;

function regionOf({ segments, ...region }: RegionJson): RegionMeaning {
  const pieces = segments.map(({ key, address, bytes }) => ({
    key: BigInt(key),
    address: BigInt(address),
    bytes,
  }));
  return new RegionMeaning({ ...region, segments: pieces });
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
  if ("$region" in tagged) return regionOf(tagged.$region as RegionJson);
  if ("$handle" in tagged) {
    const handle = tagged.$handle as HandleJson;
    const token = Uint8Array.from(Buffer.from(handle.token, "hex"));
    return new HandleMeaning({ ...handle, token, incarnation: BigInt(handle.incarnation) });
  }
  return Object.fromEntries(Object.entries(tagged).map(([key, value]) => [key, fromJson(value)]));
}
