import { bulk, bytes, service, unary } from "cinnabar";
import { z } from "zod";

/** What the children of these tests ask of each other. */
export const Trial = service("trial.v1", {
  /** Gives the token back, with the life (incarnation) of the server that saw it. */
  echo: unary({
    input: z.object({ token: z.string() }),
    output: z.object({ token: z.string(), life: z.string() }),
    idempotent: true,
  }),
  nothing: unary({ idempotent: true }),
  /** As `hold`, and says nothing. */
  linger: unary(),
  /** Ends only by its signal. */
  hold: unary({ input: z.object({ key: z.string() }) }),
  /** Ends when the server's test says `release`. */
  wait: unary({ input: z.object({ key: z.string() }), output: z.string() }),
  /** Keeps the server's thread from anything else. */
  spin: unary({ input: z.object({ ms: z.number() }) }),
  /** Waits, and leaves the server's thread to others. */
  pause: unary({ input: z.object({ ms: z.number() }) }),
  /** Is remembered in the order of arrival. */
  note: unary({
    input: z.object({ writer: z.string(), number: z.int(), load: z.string() }),
    output: z.int(),
  }),
  upload: unary({ input: bytes(), output: z.int() }),
  /** The answer is on its way, and its body with the server, when the caller's process gets the signal. */
  download: unary({
    input: z.object({ bytes: z.int(), struck: z.object({ pid: z.int(), signal: z.string() }).optional() }),
    output: bytes(),
  }),
  /** Writes the region again and again until the call ends. */
  fill: unary({ input: z.object({ into: bulk("write") }) }),
  /** Reads it again and again. */
  drain: unary({ input: z.object({ from: bulk("read") }) }),
  /** Writes the region once. */
  put: unary({ input: z.object({ into: bulk("write"), value: z.int() }), output: z.int() }),
});
