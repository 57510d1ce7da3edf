import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { compile, compilers, here } from "./compilers.ts";

const claims = readdirSync(here).filter((name) => name.endsWith(".test-d.ts"));
const fixtures = ["expect-type.ts", "frames.ts"];

/**
 * Each misuse says which error it must meet: `// @ts-expect-error TS2322 why`, or `TS2345/TS2741` where the compilers
 * differ.
 */
const directive = /\/\/ @ts-expect-error(?: (TS\d+(?:\/TS\d+)?) .+)?$/;

/** "file:line TS2322", one for each misuse, where the error must be: on the line after. */
const misuses = claims.flatMap((name) =>
  readFileSync(join(here, name), "utf8")
    .split("\n")
    .flatMap((line, index) => {
      const match = directive.exec(line);
      return match === null ? [] : [`${name}:${index + 2} ${match[1]}`];
    }),
);

/** A copy of the claims in which nothing excuses the misuses. */
let unexcused = "";

beforeAll(() => {
  unexcused = mkdtempSync(join(here, ".tmp-"));
  for (const name of [...claims, ...fixtures]) {
    const text = readFileSync(join(here, name), "utf8");
    writeFileSync(
      join(unexcused, name),
      text.replaceAll("@ts-expect-error", "misuse:").replaceAll('"../../src/', '"../../../src/'),
    );
  }
  writeFileSync(
    join(unexcused, "tsconfig.json"),
    JSON.stringify({ extends: "../../../tsconfig.json", include: ["*.test-d.ts"] }),
  );
});

afterAll(() => {
  rmSync(unexcused, { recursive: true, force: true });
});

it("the claims name the error of each misuse", () => {
  expect(claims.length).toBeGreaterThan(5);
  expect(misuses.length).toBeGreaterThan(50);
  expect(misuses.filter((misuse) => misuse.endsWith("undefined"))).toEqual([]);
});

describe.each(compilers)("$name", ({ bin }) => {
  it("finds every claim about the types true, and refuses every misuse for the reason it names", {
    timeout: 300_000,
  }, async () => {
    const { status, output } = await compile(
      bin,
      "-p",
      join(unexcused, "tsconfig.json"),
      "--pretty",
      "false",
    );
    const errors = [...output.matchAll(/^(?:.*[\\/])?([^\\/\s]+)\((\d+),\d+\): error (TS\d+):/gm)];
    const met = errors.map(([, name, line, code]) => {
      // Either of two codes stands for both, so that the two lists can be compared.
      const either = misuses.find(
        (misuse) => misuse.startsWith(`${name}:${line} `) && misuse.includes(`${code}`),
      );
      return either ?? `${name}:${line} ${code}`;
    });
    // Nothing else is wrong: a claim that is not true would be one more error.
    expect([...new Set(met)].sort()).toEqual([...misuses].sort());
    expect(output.match(/error TS/g)).toHaveLength(errors.length);
    expect(status).not.toBe(0);
  });
});
