import { expect, it } from "vitest";
import { nameFault } from "./certificate.ts";

it("a URL without a host, such as one of shm, proves nothing without the option `name`", () => {
  expect(nameFault(new Uint8Array(), "")).toContain("give the option `name` of `connect`");
});
