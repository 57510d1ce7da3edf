import type { HttpAnswer, HttpRequest } from "./exchange.ts";

/** Less than this fits into one packet in any case. */
const fewestBytes = 1024;

/** Whether the body is text that is long enough. */
export function isCompressible({ body }: HttpAnswer): boolean {
  return typeof body === "string" && body.length >= fewestBytes;
}

/** The answer with a compressed body, where the client takes gzip. */
export async function compressed(request: HttpRequest, answer: HttpAnswer): Promise<HttpAnswer> {
  const { status, headers, body } = answer;
  if (typeof body !== "string") return answer;
  const varying = [...headers, ["vary", "accept-encoding"] as const];
  if (!takesGzip(request.header("accept-encoding") ?? "")) return { status, headers: varying, body };
  const stream = new Blob([body]).stream().pipeThrough(new CompressionStream("gzip"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  return { status, headers: [...varying, ["content-encoding", "gzip"]], body: bytes };
}

/** Whether a list such as `br, gzip;q=0.5` has gzip, and not with the weight 0. */
function takesGzip(accepted: string): boolean {
  return accepted
    .toLowerCase()
    .split(",")
    .some((each) => /^\s*(?:x-)?gzip\s*(?:;\s*q=(?:1(?:\.0*)?|0?\.\d*[1-9]\d*)\s*)?$/.test(each));
}
