import { type JsonSchema, jsonSchemaOf } from "cinnabar/inspect";
import type { AnyMethod, Schema } from "cinnabar/standard";
import { holdsMemory, isVoid } from "./json/form.ts";
import { isBytes, resolved, Steps, schemaIn } from "./json/schema.ts";
import type { RawMethod } from "./options.ts";

/** A field that is plain bytes: held in memory, of the caller's memory, or a byte stream. */
export interface RawField {
  readonly name: string;
  readonly kind: "bytes" | "region" | "stream";
}

/** Which fields of a method are plain bytes. */
export interface RawForm {
  readonly body: RawField | undefined;
  readonly answer: RawField | undefined;
  readonly offset: string | undefined;
  readonly length: string | undefined;
  readonly maxBytes: number | undefined;
  /** Whether a field is memory of the caller. */
  readonly hasMemory: boolean;
}

/**
 * The fields that an entry of `allow` names; undefined for an entry that names none.
 *
 * @throws TypeError for a field that cannot be bytes, and a method that is not unary.
 */
export function rawForm(
  { method, body, answer, offset, length, maxBytes }: RawMethod,
  contract: AnyMethod,
): RawForm | undefined {
  const complain = (what: string): never => {
    throw new TypeError(`httpHandler: allow names "${method}", ${what}`);
  };
  if (body === undefined && answer === undefined) {
    const extra = Object.entries({ offset, length, maxBytes }).find(([, value]) => value !== undefined);
    return extra === undefined ? undefined : complain(`with ${extra[0]}, but without body or answer`);
  }
  if (contract.kind !== "unary") complain(`a ${contract.kind}: only a unary method has bytes as its body`);
  const inputs = fieldsOf(contract.input, "input");
  const outputs = fieldsOf(contract.output, "output");
  const bodyField = body === undefined ? undefined : rawField(body, inputs, "read");
  if (body !== undefined && bodyField === undefined)
    complain(`whose input has no bytes, bulk("read") or bulkStream("read") in the field "${body}"`);
  const fromInput = answer === undefined ? undefined : rawField(answer, inputs, "write");
  const isOutput = answer !== undefined && isBytes(outputs.get(answer) ?? {});
  const answerField: RawField | undefined =
    fromInput ?? (isOutput ? { name: answer as string, kind: "bytes" } : undefined);
  if (answer !== undefined && answerField === undefined)
    complain(
      `which has no bytes of its output, and no bulk("write") or bulkStream("write"), in the field "${answer}"`,
    );
  const other = [...inputs].find(([name, of]) => name !== body && name !== answer && holdsMemory(of));
  if (other !== undefined) complain(`whose memory "${other[0]}" JSON cannot carry`);
  if (offset !== undefined && !isNumber(inputs.get(offset)))
    complain(`whose input has no number in the field "${offset}"`);
  if (length !== undefined && (answerField?.kind !== "region" || !isNumber(outputs.get(length))))
    complain(`which needs a bulk("write") for its answer, and a number of its output in "${length}"`);
  const hasMemory = [bodyField, answerField].some((field) => field !== undefined && field.kind !== "bytes");
  return { body: bodyField, answer: answerField, offset, length, maxBytes, hasMemory };
}

function rawField(
  name: string,
  fields: ReadonlyMap<string, JsonSchema>,
  access: "read" | "write",
): RawField | undefined {
  const schema = fields.get(name);
  const region = schema?.["x-cinnabar-bulk"] as { readonly access?: string } | undefined;
  const stream = schema?.["x-cinnabar-bulk-stream"] as { readonly direction?: string } | undefined;
  if (region !== undefined && region.access === access) return { name, kind: "region" };
  if (stream !== undefined && stream.direction === access) return { name, kind: "stream" };
  return access === "read" && isBytes(schema ?? {}) ? { name, kind: "bytes" } : undefined;
}

function isNumber(schema: JsonSchema | undefined): boolean {
  return schema?.type === "number" || schema?.type === "integer" || schema?.["x-cinnabar-type"] === "bigint";
}

/** The schemas of the fields of an object. */
function fieldsOf(schema: Schema, side: "input" | "output"): Map<string, JsonSchema> {
  if (isVoid(schema)) return new Map();
  const root = schemaIn(jsonSchemaOf(schema, side));
  const object = resolved(root, root, new Steps());
  return new Map(
    Object.entries(schemaIn(object.properties)).map(([name, of]) => [
      name,
      resolved(schemaIn(of), root, new Steps()),
    ]),
  );
}
