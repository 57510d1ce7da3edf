import { Histogram } from "cinnabar/standard";

/** The shape of the tree along which a collective travels. */
export type TreeShape =
  /** The root sends to everybody. */
  | { readonly kind: "flat" }
  /** Every node has at most `ratio` children, 2 to 64, and their subtrees are of equal size. */
  | { readonly kind: "kary"; readonly ratio: number }
  /** A child of position d · ratio^j has a subtree of ratio^j positions. `ratio` is 2 to 64; 2 is the binomial tree. */
  | { readonly kind: "knomial"; readonly ratio: number };

/** One child of a node: the run of positions that its subtree covers, the child first. */
interface Subtree {
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

/** What a message costs, in milliseconds. */
interface MessageCost {
  /** For how long sending or receiving one message keeps a process busy. */
  readonly overheadMs: number;
  /** How long it is on its way. */
  readonly latencyMs: number;
}

/**
 * Up to so many members the trees differ by less than the cost of a measurement. In the flat tree a dead member delays
 * no other member.
 */
const mostFlat = 16;

const candidates: readonly TreeShape[] = [
  { kind: "flat" },
  { kind: "knomial", ratio: 2 },
  { kind: "knomial", ratio: 4 },
  { kind: "knomial", ratio: 8 },
  { kind: "knomial", ratio: 32 },
  { kind: "kary", ratio: 4 },
  { kind: "kary", ratio: 8 },
];

/** The tree by which a message reaches `count` members, and their answers come back, in the shortest time. */
export function chooseShape(count: number, cost: MessageCost): TreeShape {
  const [flat] = candidates as [TreeShape];
  if (count <= mostFlat) return flat;
  let best = flat;
  let bestMs = Number.POSITIVE_INFINITY;
  for (const shape of candidates) {
    const ms = completionMs(shape, count, cost);
    if (ms >= bestMs) continue;
    best = shape;
    bestMs = ms;
  }
  return best;
}

/** How long a broadcast to the first of `count` positions and all below it takes, with the answers of all. */
export function completionMs(shape: TreeShape, count: number, cost: MessageCost): number {
  return completion(shape, count, cost, new Map());
}

function completion(shape: TreeShape, count: number, cost: MessageCost, known: Map<number, number>): number {
  const before = known.get(count);
  if (before !== undefined) return before;
  const { overheadMs, latencyMs } = cost;
  let sentMs = 0;
  const arrivals: number[] = [];
  for (const child of subtrees(shape, count)) {
    sentMs += overheadMs;
    // Both ways: on its way, and one message less at either end than the two that the node itself pays for.
    const childMs = completion(shape, child.count, cost, known);
    arrivals.push(sentMs + 2 * (latencyMs + overheadMs) + childMs);
  }
  arrivals.sort((a, b) => a - b);
  let doneMs = sentMs;
  for (const arrivalMs of arrivals) doneMs = Math.max(doneMs, arrivalMs) + overheadMs;
  known.set(count, doneMs);
  return doneMs;
}

/** The margin of a hop never falls below this many milliseconds: timers and event loops are late by as much. */
const leastMarginMs = 20;
/** After this many messages the older half of the measurements is forgotten. */
const generation = 1024;
/** Before anything is measured: what a message costs over shared memory. */
const unmeasured: MessageCost = { overheadMs: 0.02, latencyMs: 0.05 };
/** The share of a new measurement in the mean. */
const weight = 1 / 16;

/** What messages cost on the way between members, as measured by those that are sent. */
export class Costs {
  #current = new Histogram();
  #former = new Histogram();
  #overheadMs = unmeasured.overheadMs;

  /** A message kept this process busy for so long. */
  noteSent(busyMs: number): void {
    this.#overheadMs += (busyMs - this.#overheadMs) * weight;
  }

  /** An answer came after so long, without the time that the other side had the call. */
  noteRoundTrip(ms: number): void {
    this.#current.record(Math.max(0, ms));
    if (this.#current.count < generation) return;
    this.#former = this.#current;
    this.#current = new Histogram();
  }

  /** For the choice of a tree. */
  get message(): MessageCost {
    if (this.#measured.count === 0) return { ...unmeasured, overheadMs: this.#overheadMs };
    const wayMs = this.#measured.percentile(50) / 2 - this.#overheadMs;
    return { overheadMs: this.#overheadMs, latencyMs: Math.max(0.001, wayMs) };
  }

  /** How much earlier than its parent a node gives up, so that its answer arrives in time. */
  get marginMs(): number {
    if (this.#measured.count === 0) return leastMarginMs;
    return Math.max(leastMarginMs, 2 * this.#measured.percentile(99));
  }

  /** A generation that is just begun says little. */
  get #measured(): Histogram {
    return this.#current.count < 64 && this.#former.count > 0 ? this.#former : this.#current;
  }
}
