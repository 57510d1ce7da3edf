import { setTimeout as pause } from "node:timers/promises";
import { type RpcCode, RpcError } from "cinnabar/standard";

/** Where etcd is, and the user of the requests. */
interface GatewayOptions {
  /** At least one, as `http://10.0.0.1:2379`. They are servers of one cluster. */
  readonly endpoints: readonly string[];
  /** For a cluster with authentication. */
  readonly user?: { readonly name: string; readonly password: string } | undefined;
  readonly requestTimeoutMs: number;
  readonly fetch: typeof fetch;
}

/** An object of etcd's JSON. Numbers of 64 bits are strings in it, keys and values are base64. */
export type Json = { readonly [name: string]: unknown };

/** A key that changed. */
export interface KeyChange {
  readonly key: string;
  /** The new value; undefined for a key that was deleted. */
  readonly value: string | undefined;
  readonly modRevision: bigint;
}

/** No server could be reached, or the server can do nothing at present. Another try may help. */
class Unreachable extends Error {}

/**
 * etcd by its HTTP gateway with `fetch`. A request that fails at one endpoint moves on to the next one with the next
 * try.
 *
 * Source: https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway/
 */
export class EtcdGateway {
  readonly #options: GatewayOptions;
  #place = 0;
  #token: string | undefined;

  constructor(options: GatewayOptions) {
    this.#options = options;
  }

  /**
   * One request and its answer. A request that fails may have been carried out.
   *
   * @throws RpcError `unavailable` where another try may help; `unauthenticated`, `permission_denied` or
   * `failed_precondition` for what etcd refuses
   */
  async call(path: string, body: Json, signal: AbortSignal): Promise<Json> {
    return this.#at(path, (endpoint) =>
      withTimeLimit(this.#options.requestTimeoutMs, [signal], async (limit) => {
        const response = await this.#post(endpoint, path, body, limit);
        return resultOf(await response.text());
      }),
    );
  }

  /**
   * Changes of keys with a prefix, from a revision on. Throws when the server ends it, when it breaks, and when `signal`
   * aborts. Read the keys anew before going on: a server may have compacted its history meanwhile.
   */
  async *watch(prefix: string, fromRevision: bigint, signal: AbortSignal): AsyncGenerator<KeyChange[]> {
    const range = { ...rangeOf(prefix), start_revision: String(fromRevision) };
    const endpoint = this.#endpoint;
    const opening = new AbortController();
    const late = setTimeout(() => opening.abort(), this.#options.requestTimeoutMs);
    const unlink = abortTogether(signal, opening);
    try {
      const response = await this.#post(endpoint, "/v3/watch", { create_request: range }, opening.signal);
      clearTimeout(late);
      for await (const line of linesOf(response)) {
        const { canceled, cancel_reason: reason, events = [] } = resultOf(line) as WatchResult;
        if (canceled === true)
          throw new Unreachable(`the watch was cancelled: ${reason ?? "no reason given"}`);
        if (events.length > 0) yield events.map(changeOf);
      }
      throw new Unreachable("the watch has ended");
    } catch (error) {
      throw this.#failure("/v3/watch", endpoint, error);
    } finally {
      clearTimeout(late);
      unlink();
    }
  }

  get #endpoint(): string {
    return this.#options.endpoints[this.#place % this.#options.endpoints.length] ?? "";
  }

  async #at<T>(path: string, ask: (endpoint: string) => Promise<T>): Promise<T> {
    const endpoint = this.#endpoint;
    try {
      return await ask(endpoint);
    } catch (error) {
      throw this.#failure(path, endpoint, error);
    }
  }

  async #post(endpoint: string, path: string, body: Json, signal: AbortSignal): Promise<Response> {
    const { user, fetch } = this.#options;
    const send = (token: string | undefined) =>
      fetch(new URL(path, endpoint), {
        method: "POST",
        body: JSON.stringify(body),
        headers: token === undefined ? {} : { Authorization: token },
        signal,
      });
    if (user !== undefined) this.#token ??= await this.#authenticate(endpoint, user, signal);
    let response = await send(this.#token);
    if (response.status === 401 && user !== undefined) {
      // Tokens end after some minutes, and with the server that gave them.
      await response.body?.cancel();
      this.#token = await this.#authenticate(endpoint, user, signal);
      response = await send(this.#token);
    }
    if (!response.ok) throw refusalOf(response.status, await response.text());
    return response;
  }

  async #authenticate(
    endpoint: string,
    user: NonNullable<GatewayOptions["user"]>,
    signal: AbortSignal,
  ): Promise<string> {
    const response = await this.#options.fetch(new URL("/v3/auth/authenticate", endpoint), {
      method: "POST",
      body: JSON.stringify(user),
      signal,
    });
    const text = await response.text();
    if (!response.ok) throw refusalOf(response.status, text);
    return String(resultOf(text).token);
  }

  #failure(path: string, endpoint: string, error: unknown): RpcError {
    if (error instanceof RpcError) return error;
    // The next try goes to the next server; of several requests that fail at once only one moves on.
    if (endpoint === this.#endpoint) this.#place += 1;
    const { message, cause } = error as Error;
    const why =
      cause instanceof Error ? cause.message || String((cause as { code?: unknown }).code) : message;
    return new RpcError({
      code: "unavailable",
      message: `etcd at ${endpoint} has not answered ${path}: ${why}`,
      cause: error,
    });
  }
}

interface WatchResult {
  readonly canceled?: boolean;
  readonly cancel_reason?: string;
  readonly events?: readonly { readonly type?: string; readonly kv: KeyValue }[];
}

/** A key as etcd reports it. Empty fields and zeros are left out. */
export interface KeyValue {
  readonly key: string;
  readonly value?: string;
  readonly mod_revision: string;
}

const changeOf = ({ type, kv }: { readonly type?: string; readonly kv: KeyValue }): KeyChange => ({
  key: decoded(kv.key),
  value: type === "DELETE" ? undefined : decoded(kv.value ?? ""),
  modRevision: BigInt(kv.mod_revision),
});

/** All keys with a prefix. The end of a range is the prefix with its last byte one higher. */
export function rangeOf(prefix: string): { readonly key: string; readonly range_end: string } {
  const end = Buffer.from(prefix);
  end[end.length - 1] = (end[end.length - 1] ?? 0) + 1;
  return { key: encoded(prefix), range_end: end.toString("base64") };
}

export const encoded = (text: string): string => Buffer.from(text).toString("base64");
export const decoded = (base64: string): string => Buffer.from(base64, "base64").toString();

/** An answer; of a streamed one each line has the answer in `result`. */
function resultOf(text: string): Json {
  const { result, error, ...answer } = JSON.parse(text) as Json;
  if (error !== undefined) throw refusalOf(200, text);
  return (result ?? answer) as Json;
}

/** gRPC's codes for failures that another try may cure: deadline exceeded, exhausted, aborted, unavailable. */
const retryable = new Set([4, 8, 10, 14]);

function refusalOf(status: number, text: string): Error {
  let said: { readonly error?: unknown; readonly message?: unknown; readonly code?: unknown } = {};
  try {
    said = JSON.parse(text);
    if (typeof said.error === "object" && said.error !== null) said = said.error;
  } catch {
    // A proxy in between answers with what it likes.
  }
  const message = String(said.message ?? said.error ?? `HTTP status ${status}`);
  // 3.4 has code 2, unknown, for a request that came while there was no leader.
  if (status >= 502 || retryable.has(Number(said.code)) || /leader|timed out|stopped/.test(message))
    return new Unreachable(message);
  const code = codeOfRefusal(Number(said.code), message);
  return new RpcError({ code, message: `etcd refuses the request: ${message}` });
}

/** From gRPC's code. 3.4 has code 3, invalid argument, for a request without a user, and for a wrong password. */
function codeOfRefusal(code: number, message: string): RpcCode {
  if (code === 7) return "permission_denied";
  if (code === 16 || /authentication failed|user name is empty/.test(message)) return "unauthenticated";
  return "failed_precondition";
}

/** The most characters of an answer. A view has 1.5 MB, and an event brings one. */
const maxLineLength = 64 * 1024 * 1024;

/** The lines of a body that goes on. To stop reading closes the connection. */
async function* linesOf(response: Response): AsyncGenerator<string> {
  if (response.body === null) return;
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of response.body) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    if (rest.length > maxLineLength)
      throw new Unreachable(`an answer is longer than ${maxLineLength} characters`);
    yield* lines.filter((line) => line !== "");
  }
}

/**
 * Does work with a signal that aborts after a time, or together with one of others. All of them are held until the work
 * has ended: in Node 20 the garbage collector may take a timeout that only `AbortSignal.any` refers to, and then it never
 * fires.
 */
export async function withTimeLimit<T>(
  ms: number,
  others: readonly (AbortSignal | undefined)[],
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const limit = new AbortController();
  const timer = setTimeout(
    () => limit.abort(new DOMException(`not done within ${ms} ms`, "TimeoutError")),
    ms,
  );
  const links = others.map((signal) => signal && abortTogether(signal, limit));
  try {
    return await work(limit.signal);
  } finally {
    clearTimeout(timer);
    for (const unlink of links) unlink?.();
  }
}

/** Aborts a controller when a signal does, until the returned function is called. */
function abortTogether(signal: AbortSignal, controller: AbortController): () => void {
  const onAbort = () => controller.abort(signal.reason);
  if (signal.aborted) onAbort();
  else signal.addEventListener("abort", onAbort, { once: true });
  return () => signal.removeEventListener("abort", onAbort);
}

const maxPauseMs = 5_000;

/**
 * Repeats an attempt while etcd cannot be reached, with growing pauses.
 *
 * @throws what the attempt throws, if it is not `unavailable`; when `signal` aborts, the error of the last attempt that
 * it did not cut short
 */
export async function persist<T>(attempt: () => Promise<T>, signal: AbortSignal): Promise<T> {
  let last: unknown;
  for (let failures = 0; ; failures += 1)
    try {
      return await attempt();
    } catch (error) {
      if (!(error instanceof RpcError && error.code === "unavailable")) throw error;
      if (signal.aborted) throw last ?? error;
      last = error;
      const ms = Math.min(maxPauseMs, 50 * 2 ** failures) * (0.5 + Math.random() / 2);
      await pause(ms, undefined, { signal }).catch(() => {
        throw error;
      });
    }
}
