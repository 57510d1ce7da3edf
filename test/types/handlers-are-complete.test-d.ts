import { z } from "zod";
import type { HandlersOf } from "../../src/contract/infer.ts";
import { service } from "../../src/contract/service.ts";
import { unary } from "../../src/contract/unary.ts";
import type { Context } from "./frames.ts";

const Store = service("store.v1", {
  get: unary({ input: z.string(), output: z.number() }),
  put: unary({ input: z.number() }),
});
type StoreHandlers = HandlersOf<typeof Store, Context>;

export const complete: StoreHandlers = { get: (key) => key.length, put: (value) => void value.toFixed() };

// Handlers from elsewhere fit too, among them methods of a class.
class Shop {
  async get(key: string) {
    return key.length;
  }
  put() {}
}
export const fromClass: StoreHandlers = new Shop();

// @ts-expect-error TS2741 a handler is missing
export const incomplete: StoreHandlers = { get: (key) => key.length };

export const tooMany: StoreHandlers = {
  get: (key) => key.length,
  put() {},
  // @ts-expect-error TS2353 a handler of no method
  remove() {},
};

export const wrongParameter: StoreHandlers = {
  // @ts-expect-error TS2322 a parameter that is not the input
  get: (key: number) => key,
  put() {},
};

// @ts-expect-error TS2339 a context's field that the server does not give
export const wrongContext: StoreHandlers = { get: (_, { user }) => user.id, put() {} };
