import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { codeNumbers } from "../../src/base/errors/code.ts";
import { root } from "./pages.test-support.ts";

it("the guide explains each code of an error once", () => {
  const page = readFileSync(`${root}docs/guide/errors.md`, "utf8");
  const [, table = ""] = /^## Error codes\n([\s\S]*?)^## /m.exec(page) ?? [];
  const named = [...table.matchAll(/^\| `(\w+)` \|/gm)].map(([, code]) => code);
  expect(named.sort()).toEqual(Object.keys(codeNumbers).sort());
});
