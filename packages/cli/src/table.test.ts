import { describe, expect, it } from "vitest";
import { numbers, table, wrap } from "./table.ts";

function terminal(columns: number) {
  return { columns, paint: (style: string, text: string) => `<${style}>${text}` };
}

describe("table", () => {
  const rows = [
    ["a", "one two three four five six seven"],
    ["longer", ""],
  ];

  it("prints each row on one line without a terminal", () => {
    expect(table(terminal(Number.POSITIVE_INFINITY), ["X", "WHY"], rows).join("\n")).toBe(
      "<bold>X       WHY\na       one two three four five six seven\nlonger",
    );
  });

  it("wraps the last column to the terminal's width, below itself", () => {
    expect(table(terminal(32), ["X", "WHY"], rows).join("\n")).toBe(
      "<bold>X       WHY\na       one two three four five\n        six seven\nlonger",
    );
  });
});

describe("numbers", () => {
  const rows = [
    ["a long name of something", "1", "2.5k"],
    ["b", "12345", ""],
  ];

  const lines = (columns: number) => numbers(terminal(columns), ["NAME", "N", "RATE"], rows);

  it("stand below each other behind the name", () => {
    expect(lines(Number.POSITIVE_INFINITY)).toEqual([
      `<bold>NAME${" ".repeat(26)}N  RATE`,
      "a long name of something      1  2.5k",
      "b                         12345      ",
    ]);
  });

  it("move together, and leave the end of the name what room there is, at least eight characters", () => {
    expect(lines(37)[1]).toBe("a long name of something      1  2.5k");
    expect(lines(36)[1]).toBe("a long name of something     1 2.5k");
    expect(lines(30)[1]).toBe("… name of something     1 2.5k");
    expect(lines(5)[1]).toBe("…mething     1 2.5k");
  });
});

describe("wrap", () => {
  it("cuts between words, never inside one", () => {
    expect(wrap("aa bb cc", 5)).toEqual(["aa bb", "cc"]);
    expect(wrap("aaaaaaaa bb", 3)).toEqual(["aaaaaaaa", "bb"]);
    expect(wrap("", 3)).toEqual([""]);
  });
});
