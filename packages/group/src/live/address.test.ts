import { expect, it } from "vitest";
import { parseAddress } from "./address.ts";

it("an address is an IP address and a port", () => {
  expect(parseAddress("127.0.0.1:7946")).toEqual({ ip: "127.0.0.1", port: 7946, family: 4 });
  expect(parseAddress("[::1]:65535")).toEqual({ ip: "::1", port: 65_535, family: 6 });
});

it.each(["localhost:1", "127.0.0.1", "::1:80", "[127.0.0.1]:80", "127.0.0.1:0", "127.0.0.1:65536", "", ":1"])(
  "%j is none",
  (text) => {
    expect(() => parseAddress(text)).toThrow(`failure detector: "${text}" is no address`);
  },
);
