import { RpcError } from "../base/errors/rpc-error.ts";
import { entryFault, type MetadataKey } from "../wire/metadata/entry.ts";
import { formatIssues, type InferOutput, type Schema, validate } from "./schema.ts";

/**
 * Makes a typed key of metadata: `metadata.get(key)` returns the value as the schema parses it. The schema gets the
 * string or the bytes of the call, and must not be asynchronous.
 *
 * @throws TypeError for a malformed name.
 *
 * @example
 * const tenant = metadataKey("x-tenant", z.uuid());
 * const id = call.metadata.get(tenant); // string | undefined
 */
export function metadataKey<S extends Schema>(name: string, schema: S): MetadataKey<InferOutput<S>> {
  const fault = entryFault(name, "");
  if (fault !== "") throw new TypeError(`metadataKey: ${fault}`);
  return Object.freeze({
    name,
    read(value: string | Uint8Array): InferOutput<S> {
      const verdict = validate(schema, value);
      if (verdict instanceof Promise) {
        verdict.catch(() => {});
        throw new TypeError(`metadataKey: the schema of "${name}" is asynchronous`);
      }
      if (verdict.issues === undefined) return verdict.value as InferOutput<S>;
      const message = formatIssues(`metadata "${name}"`, verdict.issues);
      throw new RpcError({ code: "invalid_argument", message });
    },
  });
}
