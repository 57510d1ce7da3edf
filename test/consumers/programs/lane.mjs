// The module of a lane. It is loaded by a thread of its own, beside a bundle too.
import { implement, service, unary } from "cinnabar/standard";

/** @type {import("cinnabar/standard").Schema<any>} */
const any = { "~standard": { version: 1, vendor: "own", validate: (value) => ({ value }) } };
const Hello = service("hello.v1", {
  hello: unary({ input: any, output: any }),
  fill: unary({ input: any, output: any }),
  page: unary({ output: any }),
});

export const serve = implement(Hello, {
  hello: ({ name }) => `Hello from a ${name}`,
  fill: () => 0,
  page: () => undefined,
});
