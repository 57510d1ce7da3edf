import { writeFileSync } from "node:fs";
import { join } from "node:path";

/**
 * Writes a contract as a large team would have it into a folder below `test/types`: each service in a file of its own,
 * and beside it one that implements and calls every method. Five shapes of method take turns, so that every part of the
 * inference is paid for.
 */
export function writeLargeContract(folder: string, services: number, methodsPerService: number): void {
  for (let index = 0; index < services; index++) {
    writeFileSync(join(folder, `contract-${index}.ts`), contract(index, methodsPerService));
    writeFileSync(join(folder, `use-${index}.ts`), use(index, methodsPerService));
  }
  writeFileSync(
    join(folder, "tsconfig.json"),
    JSON.stringify({ extends: "../../../tsconfig.json", include: ["*.ts"] }),
  );
}

interface MethodText {
  /** The method's description in the contract. */
  readonly description: string;
  /** Its implementation. */
  readonly handler: (name: string) => string;
  /** A call of it whose result is used. */
  readonly call: (name: string) => string;
}

const shapes: readonly MethodText[] = [
  {
    description: `unary({
    input: z.object({ id: z.string(), limit: z.int().optional() }),
    output: z.object({ items: z.array(z.object({ id: z.string(), size: z.number() })), total: z.int() }),
    errors: { NotFound: z.object({ id: z.string() }), Busy: z.object({ load: z.number() }) },
    idempotent: true,
  })`,
    handler: (name) => `async ${name}({ id, limit }, call) {
    if (limit === 0) return call.fail("NotFound", { id });
    return { items: [{ id, size: 1 }], total: 1 };
  }`,
    call: (name) => `const ${name} = await client.${name}.result({ id: "a" });
  if (${name}.ok) used(${name}.value.items[0]?.size);
  else if (${name}.error.reason === "NotFound") used(${name}.error.data.id);`,
  },
  {
    description: `unary({
    input: z.object({ name: z.string(), tags: z.array(z.string()).default([]), at: z.coerce.date() }),
    output: z.object({ id: z.string() }),
    timeoutMs: 500,
  })`,
    handler: (name) => `${name}: ({ name, tags, at }) => ({ id: name + tags.length + at.getTime() })`,
    call: (name) => `used((await client.${name}({ name: "a", at: 7 }, { timeoutMs: 5 })).id);`,
  },
  {
    description: `unary({
    input: z.object({ id: z.string(), into: bulk("write") }),
    output: z.object({ bytes: z.int() }),
    errors: { NotFound: z.object({ id: z.string() }) },
  })`,
    handler: (name) => `async ${name}({ into }) { return { bytes: into.byteLength }; }`,
    call: (name) => `used((await client.${name}({ id: "a", into: region })).bytes);`,
  },
  {
    description: `unary({
    input: z.discriminatedUnion("kind", [
      z.object({ kind: z.literal("text"), text: z.string() }),
      z.object({ kind: z.literal("blob"), body: bytes({ maxBytes: 4096 }) }),
    ]),
    output: z.record(z.string(), z.union([z.string(), z.number()])),
  })`,
    handler: (name) => `async ${name}(input) {
    return input.kind === "text" ? { text: input.text } : { size: input.body.byteLength };
  }`,
    call: (name) => `used((await client.${name}({ kind: "text", text: "a" })).text);`,
  },
  {
    description: "unary()",
    handler: (name) => `${name}() {}`,
    call: (name) => `await client.${name}();`,
  },
];

function methods(
  count: number,
  write: (name: string, shape: MethodText) => string,
  separator: string,
): string {
  return Array.from({ length: count }, (_, index) =>
    write(`method${index}`, shapes[index % shapes.length] as MethodText),
  ).join(separator);
}

function contract(index: number, count: number): string {
  return `import { z } from "zod";
import { bulk } from "../../../src/contract/zod-schemas.ts";
import { bytes } from "../../../src/contract/zod-schemas.ts";
import { service } from "../../../src/contract/service.ts";
import { unary } from "../../../src/contract/unary.ts";

export const Service${index} = service("large.service-${index}.v1", {
  ${methods(count, (name, shape) => `${name}: ${shape.description}`, ",\n  ")},
});
`;
}

function use(index: number, count: number): string {
  return `import type { RegionLike } from "../../../src/memory/region-kind.ts";
import type { ClientOf, HandlersOf } from "../../../src/contract/infer.ts";
import { Service${index} } from "./contract-${index}.ts";

type Service = typeof Service${index};
interface Options { readonly timeoutMs?: number }
declare const client: ClientOf<Service, { readonly call: Options; readonly stream: Options; readonly oneWay: Options }>;
declare const region: RegionLike<"read_write">;
declare function used(value: string | number | undefined): void;

export const handlers: HandlersOf<Service, { readonly signal: AbortSignal }> = {
  ${methods(count, (name, shape) => shape.handler(name), ",\n  ")},
};

export async function callEach(): Promise<void> {
  ${methods(count, (name, shape) => shape.call(name), "\n  ")}
}
`;
}
