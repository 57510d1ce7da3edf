import { z } from "zod";
import type { CallOptions } from "../../src/client/call-options.ts";
import { metadataKey } from "../../src/contract/metadata-key.ts";
import { Metadata } from "../../src/wire/metadata/metadata.ts";
import type { Equal, Expect } from "./expect-type.ts";

const options: CallOptions = { metadata: { one: "a", several: ["a", Uint8Array.of(1)] as const } };
new Metadata(options.metadata)
  .append("several", "b")
  .append("several", ["c", Uint8Array.of(2)])
  .set("one", []);
new Metadata(new Map([["several", ["a", "b"]]]));
new Metadata(new Headers());

// @ts-expect-error TS2322 a value of the wrong type among several
new Metadata({ several: ["a", 7] });
// @ts-expect-error TS2345 a value of the wrong type
new Metadata().append("one", 7);

const metadata = new Metadata();
const attempt = metadataKey("attempt", z.coerce.number());
export type FirstIsText = Expect<Equal<ReturnType<typeof first>, string | undefined>>;
export type AllAreValues = Expect<Equal<ReturnType<typeof all>, (string | Uint8Array)[]>>;
export type AllOfKey = Expect<Equal<ReturnType<typeof allOfKey>, number[]>>;
const first = () => metadata.get("one");
const all = () => metadata.getAll("several");
const allOfKey = () => metadata.getAll(attempt);
