import type { AnyMethod, AnyService } from "cinnabar/contract/standard";
import { isVoid, JsonForm } from "../json/form.ts";
import { Attempt, type HttpCallOptions } from "./attempt.ts";
import { CallErrors, rpcError } from "./call-errors.ts";

/** Options of `httpClient`. They apply to every call that does not set its own. */
export interface HttpClientOptions {
  /** The server, with the prefix of its handler: `https://api.example.com`, or `/api` on the page's own server. */
  readonly url: string;
  /** The instance of the service. Default: the implementation without a name. */
  readonly instance?: string | undefined;
  /** The deadline of a call, in milliseconds. Default: the method's, or 10,000. Streams have none by default. */
  readonly timeoutMs?: number | undefined;
  /** Headers of every call, or a function that is asked for each: for a token that is renewed. Default: none. */
  readonly metadata?:
    | Readonly<Record<string, string>>
    | (() => Readonly<Record<string, string>> | Promise<Readonly<Record<string, string>>>)
    | undefined;
  /** Whether cookies are sent: `fetch` has the values. Default: to the page's own server. */
  readonly credentials?: "omit" | "same-origin" | "include" | undefined;
  /** Takes the place of the global `fetch`, for tests. */
  readonly fetch?: typeof fetch | undefined;
}

/** A method at its URL: what all calls of it have in common. */
export class RemoteMethod {
  readonly contract: AnyMethod;
  readonly options: HttpClientOptions;
  readonly url: string;
  readonly errors: CallErrors;
  #output: JsonForm | undefined;

  constructor(service: AnyService, name: string, options: HttpClientOptions) {
    const { url, instance } = options;
    const path = `${instance === undefined ? service.name : `${service.name}#${instance}`}/${name}`;
    this.contract = service.methods[name] as AnyMethod;
    this.options = options;
    this.url = `${url.replace(/\/$/, "")}/${path.replace("#", "%23")}`;
    this.errors = new CallErrors(this.contract, path);
  }

  /** Begins a call, whose owner ends the attempt. */
  attempt(options: HttpCallOptions, otherwiseMs?: number): Attempt {
    const { timeoutMs = this.options.timeoutMs ?? this.contract.timeoutMs ?? otherwiseMs } = options;
    return new Attempt(this.errors, options, timeoutMs);
  }

  /** The headers of a request. @throws the reason of an attempt that has ended meanwhile. */
  async headers(
    { timeoutMs, signal }: Attempt,
    { metadata }: HttpCallOptions,
    type: string,
  ): Promise<Record<string, string>> {
    const { metadata: common } = this.options;
    const headers = {
      ...(typeof common === "function" ? await common() : common),
      ...metadata,
      "content-type": type,
      ...(timeoutMs === undefined ? {} : { "connect-timeout-ms": String(timeoutMs) }),
    };
    signal.throwIfAborted();
    return headers;
  }

  /** The output in the answer to a unary call. */
  async outputOf(response: Response, options: HttpCallOptions): Promise<unknown> {
    const text = await response.text();
    report(options, response.headers);
    if (!response.ok) throw await this.errors.ofAnswer(response.status, text);
    return this.contract.kind === "oneWay" ? undefined : this.output(JSON.parse(text));
  }

  /** An output or an item, from its JSON. */
  async output(json: unknown): Promise<unknown> {
    const { output } = this.contract;
    if (isVoid(output)) return undefined;
    this.#output ??= new JsonForm(output, "output", "output");
    const value = this.#output.read(json);
    const fault = await this.errors.faultOf(output, value, "output");
    if (fault === undefined) return value;
    throw rpcError("internal", `the server's answer does not fit the contract: ${fault}`, this.errors.path);
  }
}

/** Headers of a unary answer, and those that are trailers. */
function report({ onHeaders, onTrailers }: HttpCallOptions, all: Headers): void {
  if (onHeaders === undefined && onTrailers === undefined) return;
  const [headers, trailers] = [new Headers(), new Headers()];
  all.forEach((value, name) => {
    if (name.startsWith("trailer-")) trailers.append(name.slice("trailer-".length), value);
    else headers.append(name, value);
  });
  onHeaders?.(headers);
  onTrailers?.(trailers);
}
