import { describe, expect, it } from "vitest";
import { chooseShape, completionMs, heightOf, subtrees, type TreeShape } from "./tree.ts";

const mostMembers = 2000;
const ratios = [2, 3, 4, 32];
const shapes: TreeShape[] = [
  { kind: "flat" },
  ...ratios.flatMap((ratio): TreeShape[] => [
    { kind: "kary", ratio },
    { kind: "knomial", ratio },
  ]),
];
const nameOf = (shape: TreeShape) => `${shape.kind}${shape.kind === "flat" ? "" : ` ${shape.ratio}`}`;

/** The depth of every position, by visiting the tree. Fails where a position is visited twice. */
function depthsOf(shape: TreeShape, members: number): number[] {
  const depths = new Array<number>(members).fill(-1);
  const visit = (start: number, count: number, depth: number): void => {
    if (depths[start] !== -1) throw new Error(`position ${start} of ${members} was visited twice`);
    depths[start] = depth;
    for (const child of subtrees(shape, count)) visit(start + child.offset, child.count, depth + 1);
  };
  visit(0, members, 0);
  return depths;
}

/** The least exponent with ratio^exponent >= value. */
function exponent(ratio: number, value: number): number {
  let power = 1;
  let least = 0;
  for (; power < value; power *= ratio) least++;
  return least;
}

function nonZeroDigits(id: number, ratio: number): number {
  let digits = 0;
  for (let rest = id; rest > 0; rest = Math.floor(rest / ratio)) if (rest % ratio > 0) digits++;
  return digits;
}

describe.each(shapes.map((shape) => [nameOf(shape), shape] as const))("a tree: %s", (_, shape) => {
  const ratio = shape.kind === "flat" ? 2 : shape.ratio;

  it(`reaches each of N members once, for every N up to ${mostMembers}, as deep as the formula says`, () => {
    let digits = 0;
    // Every N by its depth; some position by position, since a visit costs N.
    for (let members = 1; members <= mostMembers; members++) {
      // The most digits that are not zero of any id below N.
      digits = Math.max(digits, nonZeroDigits(members - 1, ratio));
      const depth = {
        flat: Math.min(1, members - 1),
        kary: exponent(ratio, members * (ratio - 1) + 1) - 1,
        knomial: digits,
      }[shape.kind];
      // An expectation for each of thousands takes seconds.
      if (heightOf(shape, members) !== depth) expect.fail(`${members} members: not ${depth} levels`);
      if (members > 100 && members % 19 !== 0) continue;
      const depths = depthsOf(shape, members);
      expect(depths.includes(-1), `${members} are reached`).toBe(false);
      expect(Math.max(...depths), `depth of ${members}`).toBe(depth);
    }
  });

  it("sends to the largest subtree first, and gives the root as many children as the formula says", () => {
    for (let members = 1; members <= mostMembers; members++) {
      const children = subtrees(shape, members);
      const sizes = children.map(({ count }) => count);
      const isSorted = sizes.every((size, index) => index === 0 || size <= (sizes[index - 1] as number));
      const sum = sizes.reduce((total, size) => total + size, 1);
      const most = {
        flat: members - 1,
        kary: ratio,
        knomial: (ratio - 1) * exponent(ratio, members),
      }[shape.kind];
      if (!isSorted || sum !== members || sizes.length > most) expect.fail(`${members} members: ${sizes}`);
    }
  });

  it("spans 10,000 members", () => {
    expect(depthsOf(shape, 10_000).includes(-1)).toBe(false);
  });
});

describe("the model of a collective's time", () => {
  const cost = { overheadMs: 0.005, latencyMs: 0.025 };

  it.each([
    ["16 members, flat", { kind: "flat" }, 16, 0.15],
    ["1,024 members, flat", { kind: "flat" }, 1024, 10.23],
    ["1,024 members, 2-nomial", { kind: "knomial", ratio: 2 }, 1024, 0.65],
    ["1,024 members, 4-nomial", { kind: "knomial", ratio: 4 }, 1024, 0.375],
    ["10,000 members, 4-nomial", { kind: "knomial", ratio: 4 }, 10_000, 0.52],
    ["10,000 members, 8-nomial", { kind: "knomial", ratio: 8 }, 10_000, 0.45],
  ] as const)("is near the published figure: %s", (_, shape, members, publishedMs) => {
    const ms = completionMs(shape, members, cost);
    expect(ms / publishedMs).toBeGreaterThan(0.85);
    expect(ms / publishedMs).toBeLessThan(1.15);
  });
});

describe("the tree that is chosen", () => {
  it("is flat up to 16 members whatever messages cost", () => {
    for (const latencyMs of [0.001, 1, 100])
      expect(chooseShape(16, { overheadMs: 0.01, latencyMs })).toEqual({ kind: "flat" });
  });

  it("is never slower than any other by the model", () => {
    for (const members of [17, 100, 1000, 10_000])
      for (const latencyMs of [0.005, 0.05, 0.5, 5]) {
        const cost = { overheadMs: 0.02, latencyMs };
        const chosenMs = completionMs(chooseShape(members, cost), members, cost);
        for (const shape of [{ kind: "flat" }, { kind: "knomial", ratio: 4 }] as const)
          expect(chosenMs).toBeLessThanOrEqual(completionMs(shape, members, cost));
      }
  });

  it("is flat where messages are long on their way, and deep where they keep processes busy", () => {
    expect(chooseShape(100, { overheadMs: 0.001, latencyMs: 50 })).toEqual({ kind: "flat" });
    expect(chooseShape(10_000, { overheadMs: 0.05, latencyMs: 0.01 }).kind).not.toBe("flat");
  });
});
