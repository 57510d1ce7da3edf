import { describe, expect, it } from "vitest";
import type { Port } from "../fabric/port.ts";
import { Company } from "./company.ts";

const mebi = 1024 * 1024;

function setUp() {
  const port = { received: 10 };
  return { port, company: new Company(port as Port) };
}

describe("the company of long transfers", () => {
  it("is there from the third message on within 8 MiB", () => {
    const { port, company } = setUp();
    expect(company.isThere).toBe(false);
    company.onPosted(mebi);
    port.received += 2;
    expect(company.isThere).toBe(false);
    company.onPosted(6 * mebi);
    port.received++;
    expect(company.isThere).toBe(true);
  });

  it("is not there where a call moves 4 MiB", () => {
    const { port, company } = setUp();
    for (let i = 0; i < 50; i++) {
      port.received++;
      company.onPosted(4 * mebi);
      expect(company.isThere).toBe(false);
    }
  });

  it("stays while messages come, and goes after 8 MiB with few of them", () => {
    const { port, company } = setUp();
    port.received += 3;
    expect(company.isThere).toBe(true);
    for (let i = 0; i < 20; i++) {
      company.onPosted(2 * mebi);
      port.received++;
      expect(company.isThere).toBe(true);
    }
    company.onPosted(8 * mebi);
    expect(company.isThere).toBe(false);
  });

  it("are short transfers too, and long ones are not", () => {
    const { company } = setUp();
    for (let i = 0; i < 10; i++) company.onTransfer(mebi);
    expect(company.isThere).toBe(false);
    for (let i = 0; i < 3; i++) company.onTransfer(64 * 1024);
    expect(company.isThere).toBe(true);
  });
});
