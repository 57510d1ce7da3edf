import { RpcError } from "cinnabar/standard";
import { Refusal } from "./errors.ts";
import type { HttpRequest } from "./exchange.ts";
import { fromBase64 } from "./json/base64.ts";
import type { JsonForm } from "./json/form.ts";
import { JsonTextError, parseJson } from "./json/parse.ts";
import { TooLong } from "./json/schema.ts";
import { JsonValueError } from "./json/values.ts";
import type { HttpMethod } from "./methods.ts";

/*
 * What a request says in Connect's protocol: its deadline, its form, and its message as the input of a method.
 */

/** The deadline that the client sets. @throws Refusal for anything but a number of at most ten digits. */
export function timeoutOf(request: HttpRequest, maxTimeoutMs: number): number | undefined {
  const version = request.header("connect-protocol-version");
  if (version !== undefined && version !== "1")
    throw new Refusal("invalid_argument", 'the connect-protocol-version is not "1"');
  const text = request.header("connect-timeout-ms");
  if (text === undefined) return undefined;
  if (!/^\d{1,10}$/.test(text))
    throw new Refusal("invalid_argument", "the connect-timeout-ms is not a number of at most 10 digits");
  if (Number(text) === 0)
    throw new RpcError({ code: "deadline_exceeded", message: "the deadline has passed" });
  return Math.min(Number(text), maxTimeoutMs);
}

/**
 * The content type of a request, which is one of those. A page of another origin can post text and forms without asking
 * the server first, but none of these.
 *
 * @throws Refusal for any other type, and an encoding.
 */
export function assertType(request: HttpRequest, types: readonly string[]): string {
  const [type = "", ...parameters] = (request.header("content-type") ?? "").toLowerCase().split(";");
  const isUtf8 = parameters.every((each) => /^\s*charset="?utf-8"?\s*$/.test(each));
  const found = types.find((one) => one === type.trim());
  if (found === undefined || !isUtf8) {
    const wanted = types.join(", ");
    throw new Refusal("invalid_argument", `the content type must be ${types.join(" or ")}`, 415, [
      ["accept-post", wanted],
    ]);
  }
  assertIdentity(request);
  return found;
}

/** @throws Refusal for a body in an encoding. */
export function assertIdentity(request: HttpRequest): void {
  for (const header of ["content-encoding", "connect-content-encoding"])
    if ((request.header(header) ?? "identity") !== "identity")
      throw new Refusal("unimplemented", "the content encoding must be identity", 501, [
        ["accept-encoding", "identity"],
      ]);
}

/** The one message of a body in Connect's envelopes. @throws Refusal for any other number, and a compressed one. */
export function enveloped(body: Uint8Array): Uint8Array {
  const isWhole =
    body.byteLength >= 5 &&
    new DataView(body.buffer, body.byteOffset).getUint32(1) === body.byteLength - 5 &&
    body[0] === 0;
  if (!isWhole) throw new Refusal("invalid_argument", "the body is not one message in an envelope");
  return body.subarray(5);
}

/** The message of a GET: `?connect=v1&encoding=json&message=…`, percent-encoded or in base64 of URLs. */
export function messageOf(query: string, maxBytes: number): Uint8Array {
  const parameters = new URLSearchParams(query);
  const encoding = parameters.get("encoding") ?? "json";
  if (encoding !== "json")
    throw new Refusal("invalid_argument", "the encoding of the message must be json", 415);
  const version = parameters.get("connect");
  if (version !== null && version !== "v1")
    throw new Refusal("invalid_argument", 'the parameter connect is not "v1"');
  if ((parameters.get("compression") ?? "identity") !== "identity")
    throw new Refusal("unimplemented", "the compression of the message must be identity");
  const text = parameters.get("message") ?? "";
  const bytes = parameters.get("base64") === "1" ? fromBase64(text) : new TextEncoder().encode(text);
  if (bytes === undefined) throw new Refusal("invalid_argument", "the message is not base64");
  if (bytes.byteLength > maxBytes)
    throw new Refusal("resource_exhausted", `the message has more than ${maxBytes} bytes`, 413);
  return bytes;
}

/**
 * The input of a method. `complete` gets the JSON before it is read; without a message it gets an empty object.
 *
 * @throws Refusal that says what of the message does not fit.
 */
export function inputOf(
  { input }: HttpMethod,
  message: Uint8Array,
  maxDepth: number,
  complete?: (json: unknown) => unknown,
): unknown {
  // A method without input takes no message, and the empty one that clients with Protobuf send.
  if (message.byteLength === 0 && input === undefined) return undefined;
  return readBy(() => {
    const isEmpty = message.byteLength === 0 && complete !== undefined;
    const parsed = isEmpty ? {} : parseJson(message, maxDepth);
    const json = complete === undefined ? parsed : complete(parsed);
    if (input !== undefined) return input.read(json);
    if (json === null || (typeof json === "object" && Object.keys(json).length === 0)) return undefined;
    throw new Refusal("invalid_argument", "the method takes no input, so the message must be {}");
  });
}

/** One item of a client's stream. @throws Refusal that says what of the message does not fit. */
export function itemOf(form: JsonForm, message: Uint8Array, maxDepth: number): unknown {
  return readBy(() => form.read(parseJson(message, maxDepth)));
}

function readBy(read: () => unknown): unknown {
  try {
    return read();
  } catch (error) {
    if (error instanceof JsonTextError)
      throw new Refusal("invalid_argument", `the message is not valid JSON: ${error.message}`);
    if (error instanceof JsonValueError) throw new Refusal("invalid_argument", error.message);
    if (error instanceof TooLong) throw new Refusal("invalid_argument", "the message takes too long to read");
    throw error;
  }
}
