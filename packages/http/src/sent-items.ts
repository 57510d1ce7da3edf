import type { BodyPieces } from "./body.ts";
import { EnvelopeReader } from "./envelopes.ts";
import { Refusal } from "./errors.ts";
import type { JsonForm } from "./json/form.ts";
import type { HttpLimits } from "./options.ts";
import { itemOf } from "./request.ts";

/**
 * The items that a client sends in Connect's envelopes. They are read from the body as the handler takes them. `hold`
 * counts the memory of a message until its result is called.
 *
 * @throws Refusal for a message that is too long, compressed, no JSON of an item, or cut off.
 */
export async function* sentItems(
  pieces: BodyPieces,
  hold: (bytes: number) => () => void,
  form: JsonForm,
  { maxBodyBytes, maxJsonDepth }: HttpLimits,
): AsyncGenerator<unknown, void> {
  const envelopes = new EnvelopeReader({
    async read() {
      const value = await pieces.next();
      return { done: value === undefined, value };
    },
  });
  let release = () => {};
  const onLength = (bytes: number) => {
    if (bytes > maxBodyBytes)
      throw new Refusal("resource_exhausted", `the message has more than ${maxBodyBytes} bytes`, 413);
    release = hold(bytes);
  };
  try {
    for (;;) {
      const message = await envelopes.next(onLength);
      if (message === undefined) break;
      if (message.flags === 1)
        throw new Refusal("unimplemented", "the content encoding must be identity", 501);
      if (message.flags !== 0)
        throw new Refusal("invalid_argument", `a message of the client has the flags ${message.flags}`);
      const item = itemOf(form, message.bytes, maxJsonDepth);
      release();
      yield item;
    }
    if (envelopes.isCut) throw new Refusal("invalid_argument", "the body ends within a message");
  } finally {
    release();
    pieces.end();
  }
}
