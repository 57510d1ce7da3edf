import type { AnyService, InputOf, OutputOf } from "cinnabar/contract/standard";
import { plain } from "../json/values.ts";
import type { Attempt, HttpCallOptions } from "./attempt.ts";
import { rpcError } from "./call-errors.ts";
import { type HttpClientOptions, RemoteMethod } from "./remote-method.ts";

/** The names of the unary methods of a service. */
type UnaryName<S extends AnyService> = {
  readonly [K in keyof S["methods"]]: S["methods"][K]["kind"] extends "unary" ? K : never;
}[keyof S["methods"]] &
  string;

/** The names of the fields of a method's input. */
type Field<S extends AnyService, M extends UnaryName<S>> = keyof InputOf<S["methods"][M]> & string;

/** A method and its field that is the body of the request, as `allow` of `httpHandler` names them. */
export interface UploadMethod<M extends string, F extends string, O extends string> {
  /** The method's name in its service. */
  readonly method: M;
  /** The field of the input that is the body. */
  readonly body: F;
  /**
   * The field of the input that says where the bytes begin, where `allow` names one. It travels as `content-range`, so a
   * body that begins elsewhere than at 0 must have a known length.
   */
  readonly offset?: O | undefined;
}

/** The bytes of an upload. The length of a stream is not known before its end. Its error is that of the upload. */
export type UploadBody = Blob | ArrayBuffer | ArrayBufferView<ArrayBuffer> | ReadableStream<Uint8Array>;

/** Options of one upload. */
export interface HttpUploadOptions extends HttpCallOptions {
  /**
   * Receives how many bytes have been sent, and the length of all; undefined for a stream. Before an upload succeeds,
   * the last call has all of them. What it throws ends the upload, and the upload rejects with it.
   */
  readonly onProgress?: ((sentBytes: number, totalBytes: number | undefined) => void) | undefined;
}

/** Sends bytes with the other fields of the input, and resolves to the output. It rejects as calls of `httpClient` do. */
export type HttpUpload<S extends AnyService, M extends UnaryName<S>, F extends string> = (
  input: Omit<InputOf<S["methods"][M]>, F>,
  body: UploadBody,
  options?: HttpUploadOptions,
) => Promise<OutputOf<S["methods"][M]>>;

/**
 * Makes a function that sends plain bytes, such as a file, to a unary method: one that `allow` of the handler names with
 * the same `body`. The bytes are neither copied nor collected. They travel by POST, which proxies do not repeat.
 *
 * The client gives an upload a deadline only where the options or the contract set one. The server ends it at
 * `limits.maxTimeoutMs` at the latest, 300 s by default, and Node's server at its `requestTimeout`, also 300 s. Raise
 * both for longer uploads.
 *
 * `XMLHttpRequest` sends in pages, since `fetch` has no progress there: sent is what has left the page. In Node sent
 * is what the runtime has taken. In workers without `XMLHttpRequest` the progress is known at the end alone.
 * A stream needs a browser and a server that speak HTTP/2, and a method whose field is a byte stream.
 *
 * @throws TypeError for a name that is no unary method. An upload rejects with one for a stream that is locked.
 *
 * @example
 * const upload = httpUpload(Files, { method: "upload", body: "content" }, { url: "/api" });
 * await upload({ name: "a.bin" }, new Blob(["text"]), {
 *   onProgress: (sentBytes, totalBytes) => console.log(sentBytes, totalBytes),
 *   signal,
 * });
 */
export function httpUpload<
  S extends AnyService,
  M extends UnaryName<S>,
  F extends Field<S, M>,
  O extends Field<S, M> = never,
>(
  service: S,
  { method, body, offset }: UploadMethod<M, F, O>,
  options: HttpClientOptions,
): HttpUpload<S, M, F> {
  if (!Object.hasOwn(service.methods, method) || service.methods[method]?.kind !== "unary")
    throw new TypeError(`httpUpload: the service has no unary method "${method}"`);
  const remote = new RemoteMethod(service, method, options);
  return (input, bytes, callOptions = {}) =>
    upload(remote, body, offset, input as Readonly<Record<string, unknown>>, bytes, callOptions) as never;
}

async function upload(
  method: RemoteMethod,
  body: string,
  offset: string | undefined,
  input: Readonly<Record<string, unknown>>,
  bytes: UploadBody,
  options: HttpUploadOptions,
): Promise<unknown> {
  const { errors, contract } = method;
  const totalBytes = lengthOf(bytes);
  const attempt = method.attempt(options);
  let reported = -1;
  const report = (sentBytes: number) => {
    if (sentBytes === reported) return;
    reported = sentBytes;
    try {
      options.onProgress?.(sentBytes, totalBytes);
    } catch (error) {
      attempt.fail(error);
    }
  };
  try {
    await errors.check(contract.input, input, body);
    const headers = await method.headers(attempt, options, "application/octet-stream");
    const { [offset ?? body]: from = 0, ...message } = input;
    if (Number(from) > 0) headers["content-range"] = rangeOf(method, Number(from), totalBytes);
    const url = `${method.url}?message=${encodeURIComponent(JSON.stringify(plain(message)))}`;
    const { fetch, credentials } = method.options;
    const Request = totalBytes === undefined || fetch !== undefined ? undefined : pageRequest();
    // It always sends the cookies of the page's own server.
    const response =
      Request === undefined || credentials === "omit"
        ? await sendByFetch(method, url, headers, bytes, totalBytes, attempt, report)
        : await sendByRequest(new Request(), method, url, headers, bytes, attempt.signal, report);
    const output = await method.outputOf(response, options);
    report(totalBytes ?? reported);
    attempt.signal.throwIfAborted();
    return output;
  } catch (error) {
    throw attempt.errorOf(error);
  } finally {
    attempt.end();
  }
}

/** What is used of the browser's class. */
interface PageRequest {
  readonly upload: { onprogress: (event: { readonly loaded: number }) => void };
  readonly status: number;
  readonly responseText: string;
  onload: () => void;
  onerror: () => void;
  onabort: () => void;
  withCredentials: boolean;
  open(verb: string, url: string): void;
  setRequestHeader(name: string, value: string): void;
  getAllResponseHeaders(): string;
  send(body: UploadBody): void;
  abort(): void;
}

const pageRequest = (): (new () => PageRequest) | undefined =>
  (globalThis as { XMLHttpRequest?: new () => PageRequest }).XMLHttpRequest;

/** The length, where it is known. @throws TypeError for a value that is no body. */
function lengthOf(body: UploadBody): number | undefined {
  if (body instanceof ReadableStream) return undefined;
  if (body instanceof Blob) return body.size;
  if (body instanceof ArrayBuffer || ArrayBuffer.isView(body)) return body.byteLength;
  throw new TypeError("httpUpload: the body must be a Blob, bytes or a ReadableStream");
}

/** The bytes that the body is, as HTTP names them. */
function rangeOf({ errors }: RemoteMethod, from: number, totalBytes: number | undefined): string {
  if (totalBytes) return `bytes ${from}-${from + totalBytes - 1}/*`;
  const fault = `bytes that begin at ${from} must have a known length of at least 1`;
  throw rpcError("invalid_argument", fault, errors.path);
}

/** Sends by `XMLHttpRequest`, which alone says how much of a body has left the page. */
async function sendByRequest(
  request: PageRequest,
  { options: { credentials } }: RemoteMethod,
  url: string,
  headers: Readonly<Record<string, string>>,
  body: UploadBody,
  signal: AbortSignal,
  report: (sentBytes: number) => void,
): Promise<Response> {
  const abort = () => request.abort();
  // A listener gets no event of an earlier abort.
  signal.throwIfAborted();
  signal.addEventListener("abort", abort);
  try {
    await new Promise<void>((resolve, reject) => {
      request.upload.onprogress = ({ loaded }) => report(loaded);
      request.onload = () => resolve();
      request.onerror = () => reject(new TypeError("the request failed"));
      request.onabort = () => reject(signal.reason);
      request.open("POST", url);
      request.withCredentials = credentials === "include";
      for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
      request.send(body);
    });
  } finally {
    signal.removeEventListener("abort", abort);
  }
  const given = new Headers();
  for (const [, name = "", value = ""] of request.getAllResponseHeaders().matchAll(/([^:\s]+):(.*)/g))
    given.append(name, value);
  // A status without a body takes no empty text.
  return new Response(request.responseText || null, { status: request.status, headers: given });
}

async function sendByFetch(
  { errors, options: { credentials, fetch: send = fetch } }: RemoteMethod,
  url: string,
  headers: Readonly<Record<string, string>>,
  body: UploadBody,
  totalBytes: number | undefined,
  attempt: Attempt,
  report: (sentBytes: number) => void,
): Promise<Response> {
  const { sendsStreams, setsLengths } = abilities();
  const isCounted = totalBytes === undefined || (sendsStreams && setsLengths);
  if (totalBytes === undefined && !sendsStreams)
    throw rpcError("unimplemented", "the browser cannot send a stream", errors.path);
  return send(url, {
    ...{ method: "POST", signal: attempt.signal, duplex: "half" },
    ...(credentials === undefined ? {} : { credentials }),
    headers:
      isCounted && totalBytes !== undefined ? { ...headers, "content-length": String(totalBytes) } : headers,
    body: isCounted ? counted(body, attempt, report) : body,
  } as RequestInit);
}

/** What `fetch` can do here: browsers that know no streams send their names, and those that do send no length then. */
function abilities(): { readonly sendsStreams: boolean; readonly setsLengths: boolean } {
  let isAsked = false;
  const { headers } = new Request("http://a", {
    ...{ method: "POST", headers: { "content-length": "0" }, body: new ReadableStream() },
    get duplex() {
      isAsked = true;
      return "half";
    },
  } as RequestInit);
  return {
    sendsStreams: isAsked && !headers.has("content-type"),
    setsLengths: headers.has("content-length"),
  };
}

const pieceBytes = 65_536;

/** The body as a stream of short pieces, which reports what has been taken of it. What it throws ends the upload. */
function counted(
  body: UploadBody,
  attempt: Attempt,
  report: (sentBytes: number) => void,
): ReadableStream<Uint8Array> {
  const stream = body instanceof Blob ? body.stream() : body instanceof ReadableStream ? body : undefined;
  if (stream?.locked) attempt.fail(new TypeError("httpUpload: the body is locked: it has a reader already"));
  attempt.signal.throwIfAborted();
  const reader = stream?.getReader();
  let rest = stream === undefined ? bytesOf(body as ArrayBuffer) : new Uint8Array();
  let sentBytes = 0;
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          report(sentBytes);
          // Node 20 reads a body on after its request has ended.
          attempt.signal.throwIfAborted();
          while (rest.byteLength === 0) {
            const { done, value } = (await reader?.read()) ?? { done: true };
            if (done) return controller.close();
            if (Object.prototype.toString.call(value) !== "[object Uint8Array]")
              throw new TypeError("httpUpload: the body has a piece that is no Uint8Array");
            rest = value as typeof rest;
          }
          const piece = rest.subarray(0, pieceBytes);
          rest = rest.subarray(pieceBytes);
          sentBytes += piece.byteLength;
          controller.enqueue(piece);
        } catch (error) {
          attempt.fail(error);
          reader?.cancel(error).catch(() => {});
          throw error;
        }
      },
      cancel: (reason) => reader?.cancel(reason),
    },
    { highWaterMark: 0 },
  );
}

const bytesOf = (body: ArrayBuffer | ArrayBufferView<ArrayBuffer>): Uint8Array<ArrayBuffer> =>
  ArrayBuffer.isView(body)
    ? new Uint8Array(body.buffer, body.byteOffset, body.byteLength)
    : new Uint8Array(body);
