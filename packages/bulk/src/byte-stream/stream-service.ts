import { RpcError, type Schema, service, unary } from "cinnabar/standard";
import { streamNameBytes } from "../contract/stream-kind.ts";
import type { NextChunk } from "./ring.ts";

/** The reader wants chunk `seq`, and has used all chunks below `taken`. */
export type NextInput = readonly [stream: Uint8Array, seq: number, taken: number];
/** The writer has put chunk `seq`. */
export type PushInput = readonly [stream: Uint8Array, seq: number, bytes: number, last: boolean];
/** The handler's side stops the stream. */
export type StopInput = readonly [stream: Uint8Array, code: string, message: string];

const maxMessageLength = 2048;

/**
 * The requests of the side that moves the bytes to the side with the ring. The names are those of a built-in service:
 * its calls are control requests, which no window and no drain delays.
 */
export const ByteStreams = service("cinnabar.streams.v1", {
  /** The handler reads: answers when the chunk has come, with its length and whether it is the last. */
  next: unary({
    input: parts<NextInput>([isName, isCount, isCount]),
    output: parts<NextChunk>([isCount, isFlag]),
  }),
  /** The handler writes: answers when there is room for another chunk, with the number of chunks used. */
  push: unary({
    input: parts<PushInput>([isName, isCount, isCount, isFlag]),
    output: checkedBy<number>(isCount),
  }),
  stop: unary({ input: parts<StopInput>([isName, isText, isText]) }),
});

/** An array of fixed form. Another form is the sender's fault. */
function parts<T extends readonly unknown[]>(checks: readonly ((part: unknown) => boolean)[]): Schema<T> {
  return checkedBy(
    (value) =>
      Array.isArray(value) &&
      value.length === checks.length &&
      checks.every((check, index) => check(value[index])),
  );
}

function checkedBy<T>(fits: (value: unknown) => boolean): Schema<T> {
  const issues = [{ message: "the request or answer about a byte stream does not have the form it should" }];
  const validate = (value: unknown) => (fits(value) ? { value: value as T } : { issues });
  return { "~standard": { version: 1, vendor: "cinnabar-bulk", validate } };
}

function isName(part: unknown): boolean {
  return part instanceof Uint8Array && part.byteLength === streamNameBytes;
}

function isCount(part: unknown): boolean {
  return Number.isSafeInteger(part) && (part as number) >= 0;
}

function isFlag(part: unknown): boolean {
  return typeof part === "boolean";
}

function isText(part: unknown): boolean {
  return typeof part === "string" && part.length <= maxMessageLength;
}

/** The wire form of an error in `stop`. */
export function stopOf(stream: Uint8Array, { code, plainMessage }: RpcError): StopInput {
  return [stream, code, plainMessage.slice(0, maxMessageLength)];
}

/** The error of a `stop`. A code that this version does not know becomes `unknown`. */
export function errorOf([, code, message]: StopInput): RpcError {
  try {
    return new RpcError({ code: code as RpcError["code"], message, origin: "remote" });
  } catch {
    return new RpcError({ code: "unknown", message, origin: "remote" });
  }
}
