import { handle, service, unary } from "cinnabar";
import { z } from "zod";

/** What a process offers that has a file mapped. */
export const Files = service("files.v1", {
  share: unary({ input: z.object({}), output: handle("read_write") }),
});
