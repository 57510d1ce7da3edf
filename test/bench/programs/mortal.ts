import type { Party } from "../../../bench/suite/child.ts";

/** A party whose process ends when it is told to, without a word. */
export interface Mortal extends Party {
  echo(value: unknown): Promise<unknown>;
  fail(): Promise<void>;
  die(): Promise<void>;
}

export async function open(greeting: string): Promise<Mortal> {
  return {
    echo: async (value) => [greeting, value],
    fail: () => Promise.reject(new Error("it is said why")),
    die: async () => process.exit(7),
    async close() {},
  };
}
