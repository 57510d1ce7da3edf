import { describe, expect, it } from "vitest";
import type { Port } from "../fabric/port.ts";
import { Contention } from "./pacing.ts";

const mebi = 1024 * 1024;

function setUp() {
  const port = { received: 10 };
  return { port, contention: new Contention(port as Port) };
}

describe("contention", () => {
  it("begins with the third message on within 8 MiB", () => {
    const { port, contention } = setUp();
    expect(contention.isShared).toBe(false);
    contention.onPosted(mebi);
    port.received += 2;
    expect(contention.isShared).toBe(false);
    contention.onPosted(6 * mebi);
    port.received++;
    expect(contention.isShared).toBe(true);
  });

  it("is not caused by calls that move 4 MiB", () => {
    const { port, contention } = setUp();
    for (let i = 0; i < 50; i++) {
      port.received++;
      contention.onPosted(4 * mebi);
      expect(contention.isShared).toBe(false);
    }
  });

  it("stays while messages come, and goes after 8 MiB with few of them", () => {
    const { port, contention } = setUp();
    port.received += 3;
    expect(contention.isShared).toBe(true);
    for (let i = 0; i < 20; i++) {
      contention.onPosted(2 * mebi);
      port.received++;
      expect(contention.isShared).toBe(true);
    }
    contention.onPosted(8 * mebi);
    expect(contention.isShared).toBe(false);
  });

  it("is caused by short transfers too, and not by long ones", () => {
    const { contention } = setUp();
    for (let i = 0; i < 10; i++) contention.onTransfer(mebi);
    expect(contention.isShared).toBe(false);
    for (let i = 0; i < 3; i++) contention.onTransfer(64 * 1024);
    expect(contention.isShared).toBe(true);
  });
});
