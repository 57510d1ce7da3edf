import { describe, expect, it } from "vitest";
import { formatHostUrl, hasHosts, isSocketScheme, parseUrl } from "./url.ts";

describe("parseUrl", () => {
  it.each([
    ["mem://a", { scheme: "mem", host: "", port: 0, name: "a" }],
    ["shm://My.name_1-2", { scheme: "shm", host: "", port: 0, name: "My.name_1-2" }],
    [`mem://${"x".repeat(64)}`, { scheme: "mem", host: "", port: 0, name: "x".repeat(64) }],
    ["tcp://10.0.0.7:7400", { scheme: "tcp", host: "10.0.0.7", port: 7400, name: "" }],
    ["tcp://0.0.0.0:0", { scheme: "tcp", host: "0.0.0.0", port: 0, name: "" }],
    ["tcp://[::1]:65535", { scheme: "tcp", host: "::1", port: 65_535, name: "" }],
    ["tcp://[fe80::1]:1", { scheme: "tcp", host: "fe80::1", port: 1, name: "" }],
    ["tcp://localhost:80", { scheme: "tcp", host: "localhost", port: 80, name: "" }],
    ["net://[::1]:7400", { scheme: "net", host: "::1", port: 7400, name: "" }],
    ["net+unix:///run/a b.sock", { scheme: "net+unix", host: "", port: 0, name: "/run/a b.sock" }],
    ["net+pipe://greeter", { scheme: "net+pipe", host: "", port: 0, name: "greeter" }],
    ["verbs://10.77.1.1:7400", { scheme: "verbs", host: "10.77.1.1", port: 7400, name: "" }],
    ["verbs://[fe80::1]:0", { scheme: "verbs", host: "fe80::1", port: 0, name: "" }],
    ["psm3://*:0", { scheme: "psm3", host: "", port: 0, name: "" }],
    ["psm2://node-7.cluster:70000", { scheme: "psm2", host: "node-7.cluster", port: 70_000, name: "" }],
    ["efa://[fe80::1:2]:17", { scheme: "efa", host: "fe80::1:2", port: 17, name: "" }],
    ["cxi://cxi0:3", { scheme: "cxi", host: "cxi0", port: 3, name: "" }],
    ["opx://~00ff17", { scheme: "opx", host: "", port: 0, name: "00ff17" }],
    ["verbs://*:7400", { scheme: "verbs", host: "*", port: 7400, name: "" }],
    ["verbs://mlx5_0:7400", { scheme: "verbs", host: "mlx5_0", port: 7400, name: "" }],
    ["tcp://a-b.example_x.org.:80", { scheme: "tcp", host: "a-b.example_x.org.", port: 80, name: "" }],
  ])("takes %s apart", (url, parsed) => expect(parseUrl(url)).toEqual(parsed));

  it.each([
    ["tcp://localhost", "the port is missing; write tcp://localhost:PORT"],
    ["tcp://[::1]", "the port is missing; write tcp://[::1]:PORT"],
    [
      "",
      "expected tcp://host:port, verbs://host:port, net://host:port, net+unix:///path, shm://name or mem://name",
    ],
    [
      "mem",
      "expected tcp://host:port, verbs://host:port, net://host:port, net+unix:///path, shm://name or mem://name",
    ],
    [
      "http://a:1",
      "expected tcp://host:port, verbs://host:port, net://host:port, net+unix:///path, shm://name or mem://name",
    ],
    [
      "MEM://a",
      "expected tcp://host:port, verbs://host:port, net://host:port, net+unix:///path, shm://name or mem://name",
    ],
    ["mem://", "a name has 1 to 64 characters"],
    [`shm://${"x".repeat(65)}`, "a name has 1 to 64 characters"],
    ["shm://a/b", "a name has 1 to 64 characters"],
    [`shm:///${"x".repeat(64)}`, "a path has at most 64 characters"],
    ["shm:///a b", "a path has at most 64 characters"],
    ["shm://../etc", "a name has 1 to 64 characters"],
    [
      "ofi+shm://a",
      "expected tcp://host:port, verbs://host:port, net://host:port, net+unix:///path, shm://name",
    ],
    ["shm://a\n", "a name has 1 to 64 characters"],
    ["tcp://host", "the port is missing"],
    ["net://host", "the port is missing; write net://host:PORT"],
    ["net+unix://run/a", "expected net+unix:///path, a path of at most 89 bytes"],
    [`net+unix:///${"é".repeat(45)}`, "expected net+unix:///path"],
    ["net+unix:///a\0b", "expected net+unix:///path"],
    ["net+pipe://a/b", "a name has 1 to 64 characters"],
    ["verbs://host", "the port is missing"],
    ["tcp://:80", '"" is no host name'],
    ["tcp://host:", "expected tcp://host:port"],
    ["tcp://host:65536", "port 65536 is above 65535"],
    ["tcp://host:-1", "expected tcp://host:port"],
    ["tcp://host:80/path", "expected tcp://host:port"],
    ["tcp://user@host:80", '"user@host" is no host name'],
    ["efa://node", "expected efa://node:service or efa://~ and a raw address"],
    ["ucx://a/b:1", "expected ucx://node:service"],
    ["ucx://~0", "expected ucx://node:service or ucx://~ and a raw address"],
    [`ucx://~${"00".repeat(257)}`, "expected ucx://node:service or ucx://~ and a raw address"],
    ["psm3://a:4294967296", "service 4294967296 is above 4294967295"],
    ["tcp://*:80", '"*" is no host name'],
    ["tcp://::1:80", "an IPv6 host in brackets"],
    ["tcp://[10.0.0.1]:80", "[10.0.0.1] is no IPv6 address"],
    ["tcp://[::g]:80", "[::g] is no IPv6 address"],
    ["tcp://-host:80", '"-host" is no host name'],
    [`tcp://${"a".repeat(254)}:80`, "is no host name"],
  ])("refuses %j", (url, message) => {
    expect(() => parseUrl(url)).toThrow(TypeError);
    expect(() => parseUrl(url)).toThrow(message);
  });

  it("refuses what is no string", () => {
    expect(() => parseUrl(7 as never)).toThrow("url must be a string, got number");
  });

  it.each([
    ["10.0.0.1", 5],
    ["::1", 65_535],
    ["host", 0],
  ])("reads what formatHostUrl writes for %s", (host, port) => {
    for (const scheme of ["tcp", "verbs"] as const)
      expect(parseUrl(formatHostUrl(scheme, host, port))).toMatchObject({ scheme, host, port });
  });

  it("knows which schemes name hosts", () => {
    const schemes = ["mem", "shm", "tcp", "verbs", "net", "net+unix", "net+pipe", "ucx"] as const;
    expect(schemes.filter(hasHosts)).toEqual(["tcp", "verbs", "net"]);
    expect(schemes.filter(isSocketScheme)).toEqual(["net", "net+unix", "net+pipe"]);
  });

  it("takes time linear in a host name's length", () => {
    const startMs = performance.now();
    expect(() => parseUrl(`tcp://${"a-".repeat(120)}!:80`)).toThrow("is no host name");
    expect(performance.now() - startMs).toBeLessThan(1000);
  });
});
