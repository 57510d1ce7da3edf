import { subtrees, type TreeShape } from "./shape.ts";

/** What a message costs, in milliseconds. */
export interface MessageCost {
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
