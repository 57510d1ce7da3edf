import { createInterface } from "node:readline";
import { Readable } from "node:stream";
import type { JsonSchema } from "cinnabar/inspect";
import { type Metadata, RpcError } from "cinnabar/standard";
import { argumentsOf } from "../arguments.ts";
import { type BulkArgument, bulkArgument, exposeBulk, placed, writeBulk } from "../bulk-arguments.ts";
import { type Command, UsageError } from "../command.ts";
import { CommandError, commandError, statusOf } from "../command-error.ts";
import { type Connection, connectionHelp, connectionOptions, withEngine } from "../connection.ts";
import { fileOf, jsonOfValue, parsedJson, plain, valueOfJson } from "../json-values.ts";
import { metadataJson, metadataOf } from "../metadata.ts";
import { clientOf, methodName, type RemoteMethod, remoteMethod } from "../remote-method.ts";
import { faultOfJson } from "../schema-check.ts";
import type { Terminal } from "../terminal.ts";

const help = `Usage: cinnabar call URL SERVICE/METHOD [JSON | @FILE | -] [OPTION…]

Calls a method and prints its answer as JSON on one line. The input is JSON, or
that of a file or of standard input. The server says what the method takes, where
it serves reflection(engine); the input is checked before it is sent.
Bytes are base64 in JSON, or "@FILE" for those of a file.

Streams are one JSON value a line. Items of the server are printed as they come.
Items to the server are read from standard input, and sent as they come; the JSON
is then what opens the stream. Name an instance behind #: SERVICE#INSTANCE/METHOD.

  --items FILE     Reads the items to the server from a file.
  --bulk FIELD=@FILE
                   Memory for a field that the server reads: that of a file.
  --bulk FIELD=SIZE:FILE
                   Memory for a field that the server writes, such as
                   into=16MiB:out.bin. All of it is written to the file when the
                   call has succeeded.
  --metadata NAME=VALUE
                   Metadata of the call. Repeatable.
  --json           Prints one object instead: output or items, headers, trailers,
                   error, and the times in milliseconds.
  --contract FILE  Takes the contract from a module that exports the service. The
                   server needs no reflection then.
${connectionHelp}`;

const options = {
  ...connectionOptions,
  items: { type: "string" },
  bulk: { type: "string", multiple: true },
  metadata: { type: "string", multiple: true },
  json: { type: "boolean" },
  contract: { type: "string" },
} as const;

/** What one call needs beside the connection. */
interface Wish {
  readonly url: string;
  readonly inputText: string | undefined;
  readonly itemsFile: string | undefined;
  readonly bulk: readonly BulkArgument[];
  readonly metadata: Metadata;
  readonly isJson: boolean;
  readonly target: RemoteMethod;
}

/** What came of a call. */
interface Outcome {
  output?: unknown;
  items?: unknown[];
  headers: Record<string, unknown>;
  trailers: Record<string, unknown>;
  error: Record<string, unknown> | null;
}

/** `cinnabar call`: calls any method of any server. */
export const call: Command = {
  help,
  run(args, terminal) {
    const { values, positionals } = argumentsOf(args, options);
    const [url, path, inputText, ...more] = positionals;
    if (url === undefined || path === undefined)
      throw new UsageError("expected a URL and SERVICE/METHOD, such as tcp://127.0.0.1:7400 files.v1/stat");
    if (more.length > 0)
      throw new UsageError(`unexpected argument "${more[0]}"; put the JSON into one pair of quotes`);
    const name = methodName(path);
    const bulk = (values.bulk ?? []).map(bulkArgument);
    const metadata = metadataOf(values.metadata ?? []);
    return withEngine("call", values, terminal, async (connection) => {
      const startMs = performance.now();
      const peer = await connection.dial(url);
      const connectedMs = performance.now();
      const target = await remoteMethod(peer, connection, name, values.contract);
      const wish: Wish = {
        ...{ url, inputText, itemsFile: values.items, bulk, metadata, target },
        isJson: values.json ?? false,
      };
      const { input, release } = await inputOf(wish, connection);
      const outcome: Outcome = { headers: {}, trailers: {}, error: null };
      const calledMs = performance.now();
      let failure: CommandError | undefined;
      try {
        await make(clientOf(peer, target), input, wish, connection, outcome, terminal);
        writeBulk(bulk);
      } catch (error) {
        if (error instanceof UsageError || connection.signal.aborted) throw error;
        failure = failureOf(error, target.path);
        outcome.error = errorJson(failure);
      } finally {
        release();
      }
      if (wish.isJson) {
        const times = { connect: connectedMs - startMs, call: performance.now() - calledMs };
        terminal.print(JSON.stringify({ method: target.path, ...outcome, timesMs: times }));
      }
      if (failure === undefined) return 0;
      terminal.complain(`cinnabar call: ${failure.message}`);
      return failure.status;
    });
  },
};

/** The input as the client takes it, and what frees the memory in it. */
async function inputOf(
  { inputText, itemsFile, bulk, target }: Wish,
  { engine }: Connection,
): Promise<{ readonly input: unknown; release(): void }> {
  const { path, method } = target;
  const sendsItems = method.items !== undefined;
  if (itemsFile !== undefined && !sendsItems)
    throw new UsageError(`${path} takes no items: --items is for streams to the server`);
  if (inputText === "-" && sendsItems && itemsFile === undefined)
    throw new UsageError(
      "standard input has the items: give what opens the stream as JSON or @FILE, or give --items FILE",
    );
  const text = await textOf(inputText);
  if (text === undefined && method.input !== undefined && bulk.length === 0 && isRequired(method.input))
    throw new UsageError(`${path} needs an input: \`cinnabar describe\` prints what it takes`);
  if (text !== undefined && method.input === undefined)
    throw new UsageError(`${path} takes no ${sendsItems ? "input that opens it" : "input"}`);
  const json = text === undefined ? undefined : parsedJson(text, "the input");
  const regions = exposeBulk(engine, bulk, method.input);
  const value = checked(json, method.input, "input", new Map(bulk.map(({ path: at }) => [at, true])));
  return {
    input: placed(value, regions),
    release() {
      for (const region of regions.values()) region[Symbol.dispose]();
    },
  };
}

/** Whether a method requires an input. A schema of any value does not require one. */
const isRequired = (schema: JsonSchema): boolean =>
  "type" in schema || "properties" in schema || "$ref" in schema;

async function textOf(given: string | undefined): Promise<string | undefined> {
  if (given === "-") {
    const chunks: Buffer[] = [];
    for await (const chunk of process.stdin) chunks.push(chunk as Buffer);
    return Buffer.concat(chunks).toString("utf8");
  }
  return given?.startsWith("@") ? fileOf(given.slice(1), "the input").toString("utf8") : given;
}

/** The value of JSON that fits the schema. `elsewhere`: what other options give, by path. */
function checked(
  json: unknown,
  schema: JsonSchema | undefined,
  path: string,
  elsewhere: ReadonlyMap<string, unknown> = new Map(),
): unknown {
  const value = json === undefined ? undefined : valueOfJson(json, schema, path);
  const whole = placed(json, elsewhere);
  const fault = schema === undefined || whole === undefined ? undefined : faultOfJson(whole, schema, path);
  if (fault !== undefined) throw new UsageError(fault);
  return value;
}

/** Makes the call, prints its answers as they come, and notes them. */
async function make(
  client: ReturnType<typeof clientOf>,
  input: unknown,
  wish: Wish,
  { signal, timeoutMs, hasTimeout }: Connection,
  outcome: Outcome,
  terminal: Terminal,
): Promise<void> {
  const { target, metadata, isJson } = wish;
  const { kind, input: takes, timeoutMs: ownMs } = target.method;
  const own = {
    signal,
    metadata,
    onHeaders: (headers: Metadata) => Object.assign(outcome.headers, metadataJson(headers)),
    onTrailers: (trailers: Metadata) => Object.assign(outcome.trailers, metadataJson(trailers)),
  };
  const opening = takes === undefined ? [] : [input];
  const limit = hasTimeout ? { timeoutMs } : {};
  const print = (value: unknown) => {
    if (isJson) (outcome.items ??= []).push(plain(value));
    else terminal.print(jsonOfValue(value));
  };
  const answer = (value: unknown) => {
    outcome.output = plain(value);
    if (!isJson && value !== undefined) terminal.print(jsonOfValue(value));
  };
  if (kind === "oneWay") {
    await client(...opening, { signal, metadata, ...limit });
    return;
  }
  if (kind === "unary") {
    answer(await client(...opening, { ...own, timeoutMs: hasTimeout ? timeoutMs : (ownMs ?? timeoutMs) }));
    return;
  }
  const streamed = { ...own, ...limit, idleTimeoutMs: false as const };
  if (kind === "serverStream") {
    if (isJson) outcome.items = [];
    for await (const item of client(...opening, streamed) as AsyncIterable<unknown>) print(item);
    return;
  }
  const items = new Lines(wish.itemsFile, target.method.items);
  try {
    const answered = client(...opening, items.values(), streamed);
    if (kind === "clientStream") answer(await answered);
    else {
      if (isJson) outcome.items = [];
      for await (const item of answered as AsyncIterable<unknown>) print(item);
    }
  } catch (error) {
    throw items.fault ?? error;
  } finally {
    items.close();
  }
  // A line that cannot be sent ends the stream, which the server may answer all the same.
  if (items.fault !== undefined) throw items.fault;
}

/** The items to the server: one JSON value a line. */
class Lines {
  /** Why a line could not be sent. */
  fault: UsageError | undefined;
  readonly #schema: JsonSchema | undefined;
  readonly #input: NodeJS.ReadableStream & { destroy(): void };
  readonly #reader: ReturnType<typeof createInterface>;
  readonly #lines: AsyncIterableIterator<string>;

  constructor(file: string | undefined, schema: JsonSchema | undefined) {
    this.#schema = schema;
    this.#input = file === undefined || file === "-" ? process.stdin : streamOf(file);
    this.#reader = createInterface({ input: this.#input, crlfDelay: Number.POSITIVE_INFINITY });
    // Now, not when the first item is asked for: lines that come before would be lost.
    this.#lines = this.#reader[Symbol.asyncIterator]();
  }

  async *values(): AsyncGenerator<unknown> {
    let number = 0;
    for await (const line of this.#lines) {
      number++;
      if (line.trim() === "") continue;
      try {
        yield checked(parsedJson(line, `line ${number} of the items`), this.#schema, `line ${number}`);
      } catch (error) {
        this.fault = error as UsageError;
        throw error;
      }
    }
  }

  /** Reads no more: the server may have ended the stream before all items were read. */
  close(): void {
    this.#reader.close();
    this.#input.destroy();
  }
}

/** The file is read at once, so that a missing one is noticed before the stream opens. */
function streamOf(file: string): NodeJS.ReadableStream & { destroy(): void } {
  return Readable.from([fileOf(file, "--items")]);
}

function failureOf(error: unknown, path: string): CommandError {
  if (!(error instanceof RpcError)) return commandError(error);
  const { reason, data } = error;
  if (reason === undefined) return commandError(error, path);
  const detail = data === undefined ? reason : `${reason}: ${jsonOfValue(data)}`;
  return new CommandError(`${path}: ${error.message} (${detail})`, statusOf(error.code), error);
}

/** The error as `--json` shows it. */
function errorJson({ message, cause }: CommandError): Record<string, unknown> {
  if (!(cause instanceof RpcError)) return { message };
  const { code, reason, data, retryable, retryAfterMs, notExecuted, attempts, callId } = cause;
  const members = {
    code,
    message: cause.message,
    reason,
    data,
    retryable,
    retryAfterMs,
    notExecuted,
    attempts,
    callId,
  };
  return plain(members) as Record<string, unknown>;
}
