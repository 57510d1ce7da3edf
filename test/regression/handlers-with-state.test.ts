import { implement, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { pair } from "../matrix/pair.ts";
import { providers } from "../matrix/providers.ts";

const Counting = service("counting.v1", { next: unary({ output: z.number() }) });

class Counter {
  count = 0;
  readonly step = () => 1;
  next(): number {
    this.count += this.step();
    return this.count;
  }
}

// implement() took every field of an instance for a misspelled handler.
describe("handlers with state", () => {
  const [mem] = providers;
  if (mem === undefined) throw new Error("the table of providers is empty");

  it("may be an instance with public fields", async () => {
    const { api } = await pair(mem, [implement(Counting, new Counter())]);
    expect([await api(Counting).next(), await api(Counting).next()]).toEqual([1, 2]);
  });

  it("may be a plain object with data beside the functions", async () => {
    const handlers = {
      count: 10,
      next() {
        return ++this.count;
      },
    };
    const { api } = await pair(mem, [implement(Counting, handlers)]);
    expect(await api(Counting).next()).toBe(11);
  });

  it("may not be a plain object with a function the contract does not know", () => {
    const handlers = { next: () => 1, nxet: () => 2 };
    expect(() => implement(Counting, handlers)).toThrow('handler "nxet" is not a method of the service');
  });
});
