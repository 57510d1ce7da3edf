/** The bytes of a body, one piece after another. A reader of a web stream is one. */
export interface BodySource {
  read(): Promise<{ readonly done: boolean; readonly value?: Uint8Array | undefined }>;
  /** Ends the body, also while a `read` waits. */
  cancel(): Promise<void>;
}

/** One HTTP request, in the form that each adapter makes of its server's. */
export interface HttpRequest {
  /** In capitals. */
  readonly method: string;
  /** The path as it arrived, percent-encoded, without the query. */
  readonly path: string;
  /** What follows the question mark, or "". */
  readonly query: string;
  /** The value of a header by its name in lower case; several are joined by commas. Undefined without the header. */
  header(name: string): string | undefined;
  /** Whether the request came over HTTP/1, where a client may wait for the end of its request before it reads. */
  readonly isHttp1: boolean;
  /** The address that the connection comes from, where the adapter knows it. */
  readonly address: string | undefined;
  /** The whole body where all of it has come, which is then read; undefined where it has not, or nobody can say. */
  whole?(): Uint8Array | undefined;
  /** The body, or undefined where the request has none. It is read once; a reader that stops early cancels it. */
  body(): BodySource | undefined;
  /** Fires when the client has gone away before its answer was complete. */
  readonly signal: AbortSignal;
}

/** The body of an answer that is made while it is sent. Its reader reads it to the end or cancels it. */
export interface ItemsBody {
  /** The next bytes, or undefined at the end. It rejects where the client must see that the body is cut off. */
  next(): Promise<Uint8Array | undefined>;
  /** Safe to call at any time. */
  cancel(): void;
}

/** The answer to a request. */
export interface HttpAnswer {
  readonly status: number;
  /** Names in lower case. */
  readonly headers: readonly (readonly [name: string, value: string])[];
  /** A text is UTF-8. */
  readonly body: string | Uint8Array | ItemsBody | undefined;
}
