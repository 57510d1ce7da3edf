import type { RpcError } from "../../base/errors/rpc-error.ts";
import { parseError } from "../../wire/fault.ts";
import { asCount, builtinMethod, fail, isUint32, isUint64 } from "../control/control-method.ts";
import { streamOf } from "./bulk-stream.ts";

const noStream = "the byte stream is unknown, or has ended";

interface NextInput {
  readonly stream: bigint;
  readonly seq: number;
  readonly taken: number;
}

/** Serves `next`: the handler reads. */
export const nextMethod = builtinMethod<NextInput>(
  "next",
  ([stream, at, used]) => {
    const seq = asCount(at);
    const taken = asCount(used);
    const fits = isUint64(stream) && seq !== undefined && taken !== undefined;
    return fits ? { stream, seq, taken } : undefined;
  },
  ({ stream, seq, taken }, call, session) => {
    const writer = streamOf(session, stream)?.writer;
    if (writer === undefined) fail(call, "not_found", noStream);
    else writer.onNext(call, seq, taken);
  },
);

interface PushInput {
  readonly stream: bigint;
  readonly seq: number;
  readonly bytes: number;
  readonly last: boolean;
}

/** Serves `push`: the handler writes. */
export const pushMethod = builtinMethod<PushInput>(
  "push",
  ([stream, at, length, last]) => {
    const seq = asCount(at);
    const bytes = asCount(length);
    const fits = isUint64(stream) && seq !== undefined && bytes !== undefined && typeof last === "boolean";
    return fits ? { stream, seq, bytes, last } : undefined;
  },
  ({ stream, seq, bytes, last }, call, session) => {
    const reader = streamOf(session, stream)?.reader;
    if (reader === undefined) fail(call, "not_found", noStream);
    else reader.onPush(call, seq, bytes, last);
  },
);

interface StopInput {
  readonly stream: bigint;
  readonly error: RpcError;
}

/** Serves `stop`: the handler's side gives the stream up. */
export const stopMethod = builtinMethod<StopInput>(
  "stop",
  ([stream, word, body]) =>
    isUint64(stream) && isUint32(word) ? { stream, error: parseError(word, body) } : undefined,
  ({ stream, error }, call, session) => {
    streamOf(session, stream)?.fail(error);
    call.settle({ value: undefined });
  },
);
