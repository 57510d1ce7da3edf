import { Refusal } from "./errors.ts";
import type { HttpRequest } from "./exchange.ts";

/** A part of bytes that a request asks for. */
export type Range =
  | { readonly from: number; readonly to: number | undefined }
  /** The last bytes, as `bytes=-500` says. */
  | { readonly last: number };

/**
 * The part that a GET asks for; undefined for all. Several parts, and what is no range, count as no wish, as HTTP has it.
 */
export function rangeOf(request: HttpRequest): Range | undefined {
  if (request.method !== "GET") return undefined;
  const found = /^bytes=(\d{0,15})-(\d{0,15})$/i.exec((request.header("range") ?? "").trim());
  const [, first = "", last = ""] = found ?? [];
  if (first === "") return last === "" ? undefined : { last: Number(last) };
  const [from, to] = [Number(first), last === "" ? undefined : Number(last)];
  return to !== undefined && to < from ? undefined : { from, to };
}

/** The bytes `from` to `to`, the last of which is not part of them. @throws Refusal 416 for a part behind the end. */
export function partOf(range: Range, size: number): { readonly from: number; readonly to: number } {
  const from = "last" in range ? Math.max(0, size - range.last) : range.from;
  if (from >= size)
    throw new Refusal("out_of_range", `there are ${size} bytes`, 416, [["content-range", `bytes */${size}`]]);
  const to = "last" in range || range.to === undefined ? size : Math.min(size, range.to + 1);
  return { from, to };
}

/**
 * The part that a body is, by its `content-range`; undefined for a whole one.
 *
 * @throws Refusal for a header that is no range.
 */
export function bodyPartOf(
  request: HttpRequest,
): { readonly from: number; readonly bytes: number } | undefined {
  const text = request.header("content-range");
  if (text === undefined) return undefined;
  const found = /^bytes (\d{1,15})-(\d{1,15})\/(\d{1,15}|\*)$/i.exec(text.trim());
  const [from, last, size] = (found ?? []).slice(1).map(Number);
  if (from === undefined || last === undefined || size === undefined || last < from || last >= size)
    throw new Refusal("invalid_argument", 'the content-range is not one such as "bytes 0-99/100"');
  return { from, bytes: last - from + 1 };
}
