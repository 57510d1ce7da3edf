import { expect, it } from "vitest";
import { seeded } from "../../../../test/matrix/random.ts";
import { mean } from "./figure.ts";
import { firstSuspicionLimits } from "./first-suspicion.ts";

it.each([1, 8, 40, 100])(
  "a detector as in theory keeps the limits of %i crashes, and a slower one does not",
  (crashes) => {
    const random = seeded(crashes);
    const draw = (slower: number) =>
      Array.from({ length: crashes }, () => 1 - slower * Math.log(1 - random()));
    const limits = firstSuspicionLimits(crashes);
    let missed = 0;
    for (let run = 0; run < 1000; run++) {
      const times = draw(1);
      if (mean(times) > limits.mean || Math.max(...times) > limits.max) missed++;
    }
    expect(missed).toBeLessThanOrEqual(6);
    const isSeen = Array.from({ length: 100 }, () => mean(draw(3)) > limits.mean).filter(Boolean).length;
    if (crashes >= 40) expect(isSeen).toBeGreaterThan(90);
  },
);
