import type { HandlerInputOf, InputOf } from "../../src/contract/infer.ts";
import { bulk } from "../../src/contract/zod-schemas.ts";
import type { Access, Granting, RegionLike, RemoteRegionLike } from "../../src/memory/region-kind.ts";
import { regionBrand } from "../../src/memory/region-kind.ts";
import type { Equal, Expect } from "./expect-type.ts";
import { type FramesHandlers, frames, type Methods } from "./frames.ts";

// A client passes its region; the handler gets a handle on it.
export type ClientPasses = Expect<Equal<InputOf<Methods["load"]>, { into: RegionLike<"write"> }>>;
export type HandlerGets = Expect<Equal<HandlerInputOf<Methods["load"]>, { into: RemoteRegionLike<"write"> }>>;

declare const readable: RegionLike<"read">;
declare const writable: RegionLike<"write">;
declare const both: RegionLike<"read_write">;
declare const remote: RemoteRegionLike<"write">;
declare const unknownAccess: RegionLike;

// What is exposed for both serves for each.
frames.load({ into: writable });
frames.load({ into: both });
frames.save({ from: readable });
frames.save({ from: both });
frames.swap({ both });

// @ts-expect-error TS2322 a region the peer may only read, where it must write
frames.load({ into: readable });
// @ts-expect-error TS2322 a region the peer may only write, where it must read
frames.save({ from: writable });
// @ts-expect-error TS2322 half the access
frames.swap({ both: readable });
// @ts-expect-error TS2322 an access known at run time only
frames.load({ into: unknownAccess });
// @ts-expect-error TS2741 a peer's region, which is not the client's to lend
frames.load({ into: remote });
// @ts-expect-error TS2739 memory that was not exposed
frames.load({ into: new Uint8Array(8) });
// @ts-expect-error TS2345 an access there is not
bulk("rw");

// A class whose access is `Granting` behaves the same, without a cast at its users.
class Memory<A extends Access> implements RegionLike<A> {
  readonly [regionBrand] = true;
  readonly byteLength = 8;
  readonly access: Granting<A>;
  constructor(access: Granting<A>) {
    this.access = access;
  }
}
const memory = new Memory<"read_write">("read_write");
export const asReadable: Memory<"read"> = memory;
export const asWritable: RegionLike<"write"> = memory;
export const asAny: RegionLike = memory;
// @ts-expect-error TS2322 one access is not the other
export const notWritable: Memory<"write"> = new Memory<"read">("read");

// A handler's handle fits what asks for its right, and nothing else; a part of it is the same.
declare function put(into: RemoteRegionLike<"write">): Promise<void>;
declare function get(from: RemoteRegionLike<"read">): Promise<void>;
export const handlers: Pick<FramesHandlers, "load" | "save" | "swap"> = {
  async load({ into }) {
    await put(into);
    await put(into.slice(0, 4));
    // @ts-expect-error TS2345 reading what was lent for writing
    await get(into);
    return { bytes: into.byteLength };
  },
  async save({ from }) {
    await get(from);
    // @ts-expect-error TS2345 writing what was lent for reading
    await put(from);
  },
  async swap({ both }) {
    await get(both);
    await put(both);
  },
};
