import type { ClientOf, HandlersOf, InputOf, OutputOf } from "../../src/contract/infer.ts";
import type { StandardSchemaV1 } from "../../src/contract/schema.ts";
import { service } from "../../src/contract/service.ts";
import { unary } from "../../src/contract/unary.ts";
import type { Equal, Expect } from "./expect-type.ts";
import type { ByKind, Context } from "./frames.ts";

/** A schema as valibot's are: an object of its own kind whose standard face is computed from its type parameters. */
interface ForeignSchema<Input, Output> {
  readonly kind: "schema";
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: "foreign";
    readonly validate: (
      value: unknown,
    ) => StandardSchemaV1.Result<Output> | Promise<StandardSchemaV1.Result<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

declare const text: ForeignSchema<string, string>;
declare const count: ForeignSchema<string | number, number>;
declare const where: ForeignSchema<{ path: string }, { path: string }>;

const Foreign = service("foreign.v1", {
  measure: unary({ input: text, output: count, errors: { NoSuchPath: where } }),
});

type Measure = (typeof Foreign)["methods"]["measure"];
export type Input = Expect<Equal<InputOf<Measure>, string>>;
export type Output = Expect<Equal<OutputOf<Measure>, number>>;

declare const client: ClientOf<typeof Foreign, ByKind>;
export const measured: Promise<number> = client.measure("a");
// @ts-expect-error TS2345 an input of the wrong type
client.measure(7);

export const handlers: HandlersOf<typeof Foreign, Context> = {
  measure: (input, call) => (input === "" ? call.fail("NoSuchPath", { path: input }) : "7"),
};
