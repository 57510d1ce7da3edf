import { describe, expect, it } from "vitest";
import { table, wrap } from "./table.ts";
import type { Terminal } from "./terminal.ts";

function terminal(columns: number): Terminal {
  return { columns, print: () => {}, complain: () => {}, paint: (style, text) => `<${style}>${text}` };
}

describe("table", () => {
  const rows = [
    ["a", "one two three four five six seven"],
    ["longer", ""],
  ];

  it("prints each row on one line without a terminal", () => {
    expect(table(terminal(Number.POSITIVE_INFINITY), ["X", "WHY"], rows)).toBe(
      "<bold>X       WHY\na       one two three four five six seven\nlonger",
    );
  });

  it("wraps the last column to the terminal's width, below itself", () => {
    expect(table(terminal(32), ["X", "WHY"], rows)).toBe(
      "<bold>X       WHY\na       one two three four five\n        six seven\nlonger",
    );
  });
});

describe("wrap", () => {
  it("cuts between words, never inside one", () => {
    expect(wrap("aa bb cc", 5)).toEqual(["aa bb", "cc"]);
    expect(wrap("aaaaaaaa bb", 3)).toEqual(["aaaaaaaa", "bb"]);
    expect(wrap("", 3)).toEqual([""]);
  });
});
