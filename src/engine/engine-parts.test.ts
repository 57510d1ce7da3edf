import { describe, expect, it } from "vitest";
import { systemClock } from "../base/time/clock.ts";
import { EngineParts } from "./engine-parts.ts";
import { resolveEngineOptions } from "./options.ts";

describe("what every call reads of its engine", () => {
  it("has no getters of its own: V8 keeps an object with one as a hash table", async () => {
    const parts = new EngineParts(resolveEngineOptions({}));
    try {
      for (const object of [parts, parts.counters, parts.gate, systemClock]) {
        const own = Object.entries(Object.getOwnPropertyDescriptors(object));
        expect(own.filter(([, { get }]) => get !== undefined).map(([name]) => name)).toEqual([]);
      }
    } finally {
      await parts.close();
    }
  });
});
