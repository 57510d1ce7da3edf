import { expect, it } from "vitest";
import { assertReachable, parseAddress, transportOf } from "./address.ts";

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

it("a URL is that of a fabric, and all else an address for datagrams", () => {
  expect(["10.0.0.1:7946", "[::1]:7946"].map(transportOf)).toEqual(["udp", "udp"]);
  expect(["tcp://10.0.0.1:7946", "shm://a"].map(transportOf)).toEqual(["fabric", "fabric"]);
});

it("a URL that others can reach is accepted", () => {
  for (const url of ["tcp://10.0.0.1:7946", "verbs://[fd00::1]:80", "shm://0", "psm3://node:0"])
    expect(() => assertReachable(url)).not.toThrow();
});

it.each(["tcp://0.0.0.0:7946", "tcp://[::]:7946", "verbs://*:7946", "tcp://10.0.0.1:0"])(
  "%s is for listening only",
  (url) => {
    expect(() => assertReachable(url)).toThrow(`failure detector: "${url}" is for listening`);
  },
);

it("mem reaches no other thread", () => {
  expect(() => assertReachable("mem://a")).toThrow("reaches one thread only");
});
