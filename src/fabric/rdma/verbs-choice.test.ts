import { describe, expect, it } from "vitest";
import { canonicalGid, isInSubnet, verbsChoice } from "./verbs-choice.ts";

const where = "Engine.open: verbs";

describe("verbsChoice", () => {
  it.each([
    [{}, {}],
    [{ device: "mlx5_0" }, { device: "mlx5_0" }],
    [{ device: "mlx5_0:2" }, { device: "mlx5_0", port: 2 }],
    [{ interface: "ens1f0np0.100" }, { interface: "ens1f0np0.100" }],
    [{ subnet: "10.77.1.0/24" }, { subnet: "10.77.1.0/24" }],
    [{ subnet: "fd00::/64" }, { subnet: "fd00::/64" }],
    [{ gid: "FE80:0000::a06a:5bff:fec4:8cc3" }, { gid: "fe80::a06a:5bff:fec4:8cc3" }],
    [{ gid: "::ffff:10.77.1.1" }, { gid: "::ffff:a4d:101" }],
  ])("reads %j", (options, choice) => expect(verbsChoice("test", where, options)).toEqual(choice));

  it.each([
    [{ device: "" }, "verbs.device must be an RDMA device"],
    [{ device: "mlx5_0:x" }, "verbs.device must be an RDMA device"],
    [{ device: "../mlx5_0" }, "verbs.device must be an RDMA device"],
    [{ device: 3 }, "verbs.device must be an RDMA device"],
    [{ interface: "a/b" }, "verbs.interface must be a network interface"],
    [{ interface: "a".repeat(16) }, "verbs.interface must be a network interface"],
    [{ subnet: "10.77.1.0" }, "verbs.subnet must be an address and a prefix length"],
    [{ subnet: "10.77.1.0/33" }, "verbs.subnet must be an address and a prefix length"],
    [{ subnet: "fd00::/129" }, "verbs.subnet must be an address and a prefix length"],
    [{ subnet: "eth0/8" }, "verbs.subnet must be an address and a prefix length"],
    [{ gid: "10.77.1.1" }, "verbs.gid must be a global identifier"],
    [{ gid: "fe80::1%eth0" }, "verbs.gid must be a global identifier"],
  ])("refuses %j", (options, message) => {
    expect(() => verbsChoice("test", where, options as object)).toThrow(TypeError);
    expect(() => verbsChoice("test", where, options as object)).toThrow(message);
  });
});

it("writes an identifier in one way, and knows that of an address", () => {
  expect(canonicalGid("0000:0000:0000:0000:0000:ffff:0a4d:0101")).toBe("::ffff:a4d:101");
  expect(canonicalGid("10.77.1.1")).toBe("::ffff:a4d:101");
  expect(canonicalGid("fe80::1%eth0")).toBe("fe80::1");
});

it("knows what lies in a subnet", () => {
  expect(isInSubnet("10.77.1.9", "10.77.1.0/24")).toBe(true);
  expect(isInSubnet("10.77.2.9", "10.77.1.0/24")).toBe(false);
  expect(isInSubnet("fd00::9", "fd00::/64")).toBe(true);
  expect(isInSubnet("fd00::9", "10.77.1.0/24")).toBe(false);
  expect(isInSubnet("10.77.1.9", "nonsense")).toBe(false);
});
