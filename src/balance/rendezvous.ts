import { hashOf, mix } from "./hash.ts";

/**
 * Which of `count` numbers a key belongs to: the one whose score with the key is highest (Thaler and Ravishankar 1998, as `consistentHash`). The same in every process, for ever:
 * it depends on nothing but the two. With one number more, only the keys move that go to it.
 */
export function rendezvous(key: string, count: number): number {
  const hash = hashOf(key);
  let best = 0;
  let bestScore = -1;
  for (let number = 0; number < count; number++) {
    const score = mix(hash ^ mix(number + 1));
    if (score <= bestScore) continue;
    best = number;
    bestScore = score;
  }
  return best;
}
