import { service, unary } from "cinnabar";
import { z } from "zod";

const message = z.object({ id: z.int(), name: z.string(), text: z.string() });

/** The small object there and back, checked on both sides. */
export const Echo = service("bench.echo.v1", { echo: unary({ input: message, output: message }) });
