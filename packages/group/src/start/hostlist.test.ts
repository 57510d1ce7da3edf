import { expect, it } from "vitest";
import { expandHostlist } from "./hostlist.ts";

// As `scontrol show hostnames` of Slurm 22.05 prints them.
it.each([
  ["login", "login"],
  ["linux[1-3,6]", "linux1 linux2 linux3 linux6"],
  ["tux[0-3,12,20-22]", "tux0 tux1 tux2 tux3 tux12 tux20 tux21 tux22"],
  ["node[008-011],login", "node008 node009 node010 node011 login"],
  ["r[1-2]n[01-03]", "r1n01 r1n02 r1n03 r2n01 r2n02 r2n03"],
  ["a,b[3],c", "a b3 c"],
])("%s", (list, names) => {
  expect(expandHostlist(list).join(" ")).toBe(names);
});

it("has digits as the list has them, and parts at commas or spaces", () => {
  expect(expandHostlist("n[9-11] gpu-a[1]")).toEqual(["n9", "n10", "n11", "gpu-a1"]);
});

it.each(["", ",", "a[", "a]", "a[1-3", "a[]", "a[3-1]", "a[x]", "a[1-]", "a[123x456]", "[1[2]]"])(
  "is not %j",
  (list) => {
    expect(() => expandHostlist(list)).toThrow(RangeError);
  },
);

it.each(["a[1-999999999]", "a[0-999]b[0-999]", "a[0-40000],b[0-40000]"])("is not endless: %s", (list) => {
  expect(() => expandHostlist(list)).toThrow("more than 65536 names");
});
