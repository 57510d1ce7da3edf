// The entry `cinnabar-http/json`: the JSON forms of values that JSON does not have, for tools that read contracts by
// their JSON Schemas. It needs no module of Node.

export { isBytes, resolved, Steps, schemaIn, schemasIn, TooLong } from "./json/schema.ts";
export { type JsonReading, JsonValueError, jsonOfValue, plain, valueOfJson } from "./json/values.ts";
