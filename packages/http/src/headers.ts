import { Metadata, type MetadataValue, type ReceivedMetadata } from "cinnabar/standard";
import { Refusal } from "./errors.ts";
import type { HttpRequest } from "./exchange.ts";
import { fromBase64, toBase64 } from "./json/base64.ts";

/** Headers of an answer that belong to HTTP, to Connect or to this package: metadata cannot set them. */
const reserved =
  /^(?:connect-|content-|access-control-|trailer-|proxy-|:|(?:connection|keep-alive|te|trailer|transfer-encoding|upgrade|host|date|server|vary|allow|accept-post|retry-after|x-content-type-options|x-accel-buffering)$)/;

const printable = /^[\x20-\x7e]*$/;

/**
 * The listed headers of a request as metadata. Values of `…-bin` are bytes.
 *
 * @throws Refusal for a `…-bin` that is not base64, and a value that metadata cannot carry.
 */
export function metadataOf(request: HttpRequest, names: readonly string[]): Metadata | undefined {
  let metadata: Metadata | undefined;
  for (const name of names) {
    const text = request.header(name);
    if (text === undefined) continue;
    metadata ??= new Metadata();
    try {
      metadata.set(name, name.endsWith("-bin") ? text.split(",").map((each) => bytesOf(name, each)) : text);
    } catch (error) {
      if (error instanceof Refusal) throw error;
      throw new Refusal("invalid_argument", `the header ${name} has a value that metadata cannot carry`);
    }
  }
  return metadata;
}

function bytesOf(name: string, text: string): Uint8Array {
  const bytes = fromBase64(text.trim());
  if (bytes === undefined) throw new Refusal("invalid_argument", `the header ${name} is not base64`);
  return bytes;
}

/** Metadata of an answer as headers. Each name gets the prefix: `trailer-` for the trailers of a unary answer. */
export function headersOf(
  metadata: Metadata | ReceivedMetadata | undefined,
  prefix: "" | "trailer-" = "",
): [name: string, value: string][] {
  if (metadata === undefined) return [];
  return [...metadata].flatMap(([name, value]) =>
    reserved.test(name) ? [] : [headerOf(prefix + name, value)],
  );
}

/** What a header cannot carry travels as base64 under the name with `-bin`. */
function headerOf(name: string, value: MetadataValue): [name: string, value: string] {
  const isBinary = name.endsWith("-bin");
  if (typeof value === "string" && !isBinary && printable.test(value)) return [name, value];
  const bytes = typeof value === "string" ? new TextEncoder().encode(value) : value;
  return [isBinary ? name : `${name}-bin`, toBase64(bytes).replace(/=+$/, "")];
}

/** Headers of a file, which the answer of plain bytes takes from the handler. */
const ofFile = ["content-disposition", "content-language"];

/** Metadata of an answer of plain bytes as headers: the handler also sets what describes a file. */
export function rawHeadersOf(metadata: Metadata | ReceivedMetadata | undefined): [string, string][] {
  const text = (name: string): string | undefined => {
    const value = metadata?.get(name);
    return typeof value === "string" && printable.test(value) ? value : undefined;
  };
  const own = ofFile.flatMap((name): [string, string][] => {
    const value = text(name);
    return value === undefined ? [] : [[name, value]];
  });
  const type = text("content-type") ?? "application/octet-stream";
  return [["content-type", type], ...own, ...headersOf(metadata)];
}
