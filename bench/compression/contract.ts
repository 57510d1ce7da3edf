import { service, unary } from "cinnabar";
import { z } from "zod";

/** Rows as an application would put them into JSON: names repeat, numbers do not. */
export const Rows = service("bench.rows.v1", {
  echo: unary({ input: z.array(z.unknown()), output: z.array(z.unknown()), timeoutMs: 60_000 }),
});

export interface Row {
  readonly id: number;
  readonly name: string;
  readonly price: number;
  readonly tags: readonly string[];
}

/** Some rows of about `bytes` together, as msgpack. */
export function rowsOf(bytes: number): Row[] {
  const rows: Row[] = [];
  // A row takes 55 bytes.
  for (let id = 0; id * 55 < bytes; id++)
    rows.push({
      id,
      name: `item ${(id * 7919) % 10_007}`,
      price: Math.round(Math.sin(id) * 1e6) / 100,
      tags: ["new", "stock", String(id % 17)],
    });
  return rows;
}
