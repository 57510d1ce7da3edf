import type { ClientOf, HandlersOf, InputOf } from "../../src/contract/infer.ts";
import type { StandardSchemaV1 } from "../../src/contract/schema.ts";
import type { RegionLike, RemoteRegionLike } from "../../src/memory/region-kind.ts";
import { bulk, bytes, fields, service, unary } from "../../src/standard.ts";
import type { Equal, Expect } from "./expect-type.ts";
import type { ByKind, Context } from "./frames.ts";

declare const radius: StandardSchemaV1<number | string, number>;
declare const note: StandardSchemaV1<string | undefined, string | undefined>;

const Images = service("images.v1", {
  blur: unary({ input: fields({ radius, note, pixels: bulk("read_write") }), output: bytes() }),
});

type Blur = (typeof Images)["methods"]["blur"];
export type Input = Expect<
  Equal<
    InputOf<Blur>,
    { radius: number | string; pixels: RegionLike<"read_write">; note?: string | undefined }
  >
>;

declare const client: ClientOf<typeof Images, ByKind>;
declare const readable: RegionLike<"read">;
declare const pixels: RegionLike<"read_write">;
export const blurred: Promise<Uint8Array> = client.blur({ radius: 2, pixels });
// @ts-expect-error TS2322 a region with too little access
client.blur({ radius: 2, pixels: readable });
// @ts-expect-error TS2345/TS2741 a field is missing
client.blur({ radius: 2 });

export const handlers: HandlersOf<typeof Images, Context> = {
  blur: (input) => {
    const parsed: number = input.radius;
    const remote: RemoteRegionLike<"read_write"> = input.pixels;
    // @ts-expect-error TS2322 it may be missing
    const missing: string = input.note;
    return new Uint8Array(parsed + remote.byteLength + missing.length);
  },
};
