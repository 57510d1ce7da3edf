import { describe, expect, it } from "vitest";
import { holds } from "../gates/figure.ts";
import { gates } from "./gates.ts";

describe.each(gates)("gate $id: $what", ({ short }) => {
  it("holds in its short form", () => {
    const figures = short();
    expect(figures.length).toBeGreaterThan(0);
    expect(figures.filter((figure) => !holds(figure))).toEqual([]);
  });
});
