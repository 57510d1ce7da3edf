import { service } from "cinnabar";
import { collective } from "cinnabar-group";
import { z } from "zod";
import type { SmallObject } from "../contenders/payloads.ts";

const message = z.object({ id: z.int(), name: z.string(), text: z.string() });

/** Reduces two answers: the text of one, with the sum of both numbers. */
export const added = ({ id, name, text }: SmallObject, other: SmallObject): SmallObject => ({
  id: id + other.id,
  name,
  text,
});

/** Every member answers with what it got. On the way to the caller the numbers of two answers become their sum. */
export const Gathering = service("bench.gathering.v1", {
  echo: collective({
    input: message,
    output: message,
    reduce: added,
  }),
});
