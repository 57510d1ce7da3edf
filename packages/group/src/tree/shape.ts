/** The shape of the tree along which a collective travels. */
export type TreeShape =
  /** The root sends to everybody. */
  | { readonly kind: "flat" }
  /** Every node has at most `ratio` children, 2 to 64, and their subtrees are of equal size. */
  | { readonly kind: "kary"; readonly ratio: number }
  /** A child of position d · ratio^j has a subtree of ratio^j positions. `ratio` is 2 to 64; 2 is the binomial tree. */
  | { readonly kind: "knomial"; readonly ratio: number };

/** One child of a node: the run of positions that its subtree covers, the child first. */
export interface Subtree {
  /** Where the run begins, counted from the node itself at 0. */
  readonly offset: number;
  /** How many positions it has, the child included. */
  readonly count: number;
}

export const leastRatio = 2;
export const mostRatio = 64;

/**
 * The children of the first of `count` positions, in the order in which they are sent to: the largest subtree first,
 * because it needs the longest time.
 *
 * A subtree is a run of positions that begins with its root. So a node that knows its run computes its children, and a
 * parent computes those of a child that died, from the shape and a number alone.
 */
export function subtrees(shape: TreeShape, count: number): Subtree[] {
  if (shape.kind === "flat") {
    return Array.from({ length: Math.max(0, count - 1) }, (_, index) => ({ offset: index + 1, count: 1 }));
  }
  return shape.kind === "kary" ? equalParts(shape.ratio, count) : powers(shape.ratio, count);
}

/** How many levels lie below the first of `count` positions. */
export function heightOf(shape: TreeShape, count: number): number {
  // The largest subtree is also the highest: of two with the same shape the larger contains the smaller.
  const [largest] = subtrees(shape, count);
  return largest === undefined ? 0 : 1 + heightOf(shape, largest.count);
}

/** As many parts as the ratio allows, the first ones larger by one where it does not come out even. */
function equalParts(ratio: number, count: number): Subtree[] {
  const below = Math.max(0, count - 1);
  const parts: Subtree[] = [];
  for (let index = 0, offset = 1; index < ratio && offset <= below; index++) {
    const size = Math.floor(below / ratio) + (index < below % ratio ? 1 : 0);
    parts.push({ offset, count: size });
    offset += size;
  }
  return parts;
}

/** Runs of ratio^j positions at the multiples of ratio^j. The last of all may be cut off by the end. */
function powers(ratio: number, count: number): Subtree[] {
  const parts: Subtree[] = [];
  for (let size = 1; size < count; size *= ratio) {
    for (let digit = 1; digit < ratio && digit * size < count; digit++) {
      const offset = digit * size;
      parts.push({ offset, count: Math.min(size, count - offset) });
    }
  }
  return parts.sort((a, b) => b.count - a.count || b.offset - a.offset);
}
