import { expect, it } from "vitest";
import { canReach, parseAddress } from "./datagrams.ts";

it("an address is an IP address and a port", () => {
  expect(parseAddress("127.0.0.1:7946")).toEqual({ ip: "127.0.0.1", port: 7946, family: 4 });
  expect(parseAddress("[::1]:65535")).toEqual({ ip: "::1", port: 65_535, family: 6 });
});

it.each([
  "localhost:1",
  "tcp://127.0.0.1:1",
  "127.0.0.1",
  "::1:80",
  "[127.0.0.1]:80",
  "127.0.0.1:0",
  "127.0.0.1:65536",
  "",
  ":1",
])("%j is refused", (text) => {
  expect(() => parseAddress(text)).toThrow(`failure detector: "${text}" is no address`);
});

it("a detector reaches addresses of its own IP version, and others do it no harm", () => {
  expect(canReach("127.0.0.1:1", "10.0.0.1:2")).toBe(true);
  expect(canReach("[::1]:1", "[fd00::1]:2")).toBe(true);
  for (const other of ["[::1]:2", "tcp://10.0.0.1:2", "host:2", ""])
    expect(canReach("127.0.0.1:1", other)).toBe(false);
});
