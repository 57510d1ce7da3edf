import type { BodyPieces } from "./body.ts";
import { EnvelopeReader } from "./envelopes.ts";
import { Refusal } from "./errors.ts";
import type { JsonForm } from "./json/form.ts";
import type { HttpLimits } from "./options.ts";
import { itemOf } from "./request.ts";

/**
 * The items that a client sends in Connect's envelopes. They are read from the body as the handler takes them. `hold`
 * counts memory until its result is called.
 *
 * @throws Refusal for a message that is too long, too slow, compressed, no JSON of an item, or cut off.
 */
export async function* sentItems(
  pieces: BodyPieces,
  hold: (bytes: number) => () => void,
  form: JsonForm,
  { maxBodyBytes, maxJsonDepth }: HttpLimits,
): AsyncGenerator<unknown, void> {
  let isWithin = false;
  /** Memory counts when it comes: a length alone takes none. */
  const held: (() => void)[] = [];
  const release = () => {
    for (const each of held.splice(0)) each();
  };
  const envelopes = new EnvelopeReader({
    async read() {
      // Between two messages a client may be silent, and within one it may not stand still.
      const value = await pieces.next(!isWithin && !envelopes.isCut);
      if (value !== undefined) held.push(hold(value.byteLength));
      return { done: value === undefined, value };
    },
  });
  const onLength = (bytes: number) => {
    if (bytes > maxBodyBytes)
      throw new Refusal("resource_exhausted", `the message has more than ${maxBodyBytes} bytes`, 413);
    isWithin = true;
  };
  try {
    for (;;) {
      const message = await envelopes.next(onLength);
      if (message === undefined) break;
      if (message.flags === 1)
        throw new Refusal("unimplemented", "the content encoding must be identity", 501);
      if (message.flags !== 0)
        throw new Refusal("invalid_argument", `a message of the client has the flags ${message.flags}`);
      isWithin = false;
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
