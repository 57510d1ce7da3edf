import { Refusal } from "./errors.ts";
import type { HttpAnswer, HttpRequest } from "./exchange.ts";

/** Which pages of other origins may call, and how. */
export interface CorsOptions {
  /**
   * Origins such as `https://app.example.com`, or "*" for all of them. With `credentials`, name each origin.
   */
  readonly origins: readonly string[] | "*";
  /** Whether browsers may send cookies. Default false. */
  readonly credentials?: boolean | undefined;
  /** How long a browser may remember the answer to a preflight, in seconds. Default 7200. */
  readonly maxAgeS?: number | undefined;
}

type Headers = HttpAnswer["headers"];

/** Headers of a response that every page may read. */
const readable = new Set(["cache-control", "content-language", "content-type", "expires", "last-modified"]);

/** Decides which pages may call, so that a page that somebody visits cannot call in the visitor's name. */
export class Origins {
  readonly #cors: CorsOptions | undefined;
  readonly #allowedHeaders: string;
  readonly #allowedVerbs: string;

  constructor(cors: CorsOptions | undefined, requestHeaders: readonly string[], hasBytes: boolean) {
    this.#cors = cors;
    const ours = ["content-type", "connect-protocol-version", "connect-timeout-ms", "x-user-agent"];
    if (hasBytes) ours.push("content-range", "range");
    this.#allowedVerbs = hasBytes ? "GET, POST, PUT" : "GET, POST";
    this.#allowedHeaders = [...new Set([...ours, ...requestHeaders])].join(", ");
  }

  /** @throws Refusal for a request that a page of an unlisted origin makes. */
  assertAllowed(request: HttpRequest): void {
    const origin = request.header("origin");
    if (origin !== undefined && this.#lists(origin)) return;
    const site = request.header("sec-fetch-site");
    // Browsers set it, and pages cannot. It is missing on plain HTTP to other hosts.
    const isForeign =
      site === undefined
        ? origin !== undefined && hostOf(origin) !== request.header("host")?.toLowerCase()
        : site !== "same-origin" && site !== "none";
    if (!isForeign || (origin === undefined && this.#cors?.origins === "*")) return;
    throw new Refusal("permission_denied", "pages of this origin may not call the service");
  }

  /** The headers by which the page may read this answer. */
  headersFor(request: HttpRequest, answer: Headers): Headers {
    if (this.#cors === undefined) return [];
    const origin = request.header("origin");
    if (origin === undefined || !this.#lists(origin)) return [["vary", "origin"]];
    const names = [...new Set(answer.map(([name]) => name))].filter((name) => !readable.has(name));
    return [
      ...this.#allowing(origin),
      ...(names.length > 0 ? [["access-control-expose-headers", names.join(", ")] as const] : []),
    ];
  }

  /** The answer to a preflight. It needs no authentication. */
  preflight(request: HttpRequest): HttpAnswer {
    const origin = request.header("origin");
    if (this.#cors === undefined || origin === undefined || !this.#lists(origin))
      throw new Refusal("permission_denied", "pages of this origin may not call the service");
    return {
      status: 204,
      headers: [
        ...this.#allowing(origin),
        ["access-control-allow-methods", this.#allowedVerbs],
        ["access-control-allow-headers", this.#allowedHeaders],
        ["access-control-max-age", String(this.#cors.maxAgeS ?? 7200)],
      ],
      body: undefined,
    };
  }

  #lists(origin: string): boolean {
    return this.#cors?.origins === "*" || this.#cors?.origins.includes(origin) === true;
  }

  #allowing(origin: string): Headers {
    return [
      ["access-control-allow-origin", origin],
      ["vary", "origin"],
      ...(this.#cors?.credentials === true ? [["access-control-allow-credentials", "true"] as const] : []),
    ];
  }
}

function hostOf(origin: string): string | undefined {
  try {
    return new URL(origin).host;
  } catch {
    // A page in a sandbox has the origin "null".
    return undefined;
  }
}
