import { expect, it } from "vitest";
import { forkSafety } from "./fork-safety.ts";

it("forks are safe by the kernel from 5.12 on, before that by libibverbs or not at all", () => {
  expect(forkSafety("6.1.0-18-amd64", {})).toBe("kernel");
  expect(forkSafety("5.12.0", {})).toBe("kernel");
  expect(forkSafety("5.4.0-150-generic", {})).toBe("nobody");
  expect(forkSafety("4.18.0-372.el8.x86_64", { RDMAV_FORK_SAFE: "1" })).toBe("libibverbs");
  expect(forkSafety("4.18.0", { IBV_FORK_SAFE: "1" })).toBe("libibverbs");
});
