import { describe, expect, it } from "vitest";
import { Confirmation } from "./confirmation.ts";

describe("confirmation", () => {
  it("is due when something has left and nothing follows it, until a pong confirms it", () => {
    const confirmation = new Confirmation();
    expect(confirmation.isDue()).toBe(false);
    confirmation.left += 3;
    expect(confirmation.isDue()).toBe(false);
    expect([confirmation.isDue(), confirmation.isDue()]).toEqual([true, true]);
    confirmation.onPong(confirmation.word);
    expect(confirmation.isDue()).toBe(false);
  });

  it("is not due while frames leave: the number of each message shows the loss of those before it", () => {
    const confirmation = new Confirmation();
    for (let i = 0; i < 10; i++) {
      confirmation.left += 1;
      expect(confirmation.isDue()).toBe(false);
    }
  });

  it("is due again when something left after the ping that a pong answers", () => {
    const confirmation = new Confirmation();
    confirmation.left += 1;
    const { word } = confirmation;
    confirmation.left += 1;
    confirmation.onPong(word);
    confirmation.isDue();
    expect(confirmation.isDue()).toBe(true);
  });

  it("is not due for pings and pongs", () => {
    const confirmation = new Confirmation();
    for (let i = 0; i < 10; i++) {
      confirmation.onState();
      confirmation.left += 1;
      expect(confirmation.isDue()).toBe(false);
    }
  });
});
