import { describe, expect, it } from "vitest";
import type { DomainReport } from "../libfabric/addon.ts";
import { rdmaDevices } from "./devices.ts";
import { fakeRdmaSystem } from "./fake-system.test-support.ts";
import { deviceOfDomain, fits, listRails, oneForEachPort, type Rail, railsOf } from "./rails.ts";
import { verbsChoice } from "./verbs-choice.ts";

const at = (domain: string, address: string, scheme = "verbs") =>
  ({ scheme, provider: "verbs;ofi_rxm", domain, address }) as unknown as DomainReport;

const interfaces = {
  lo: [{ address: "127.0.0.1" }],
  eth0: [{ address: "10.77.1.1" }, { address: "fd00:1::1" }],
  eth1: [{ address: "10.77.2.1" }],
  ib0: [{ address: "10.99.0.1" }],
};

/** The machine of `fakeRdmaSystem`, with IP over InfiniBand. */
function rails(): Rail[] {
  const domains = [
    at("mlx5_0", "10.99.0.1"),
    at("rxe0", "fd00:1::1"),
    at("rxe0", "10.77.1.1"),
    at("siw0", "10.77.2.1"),
    at("siw0", ""),
    at("eth0", "10.77.1.1", "tcp"),
  ];
  return railsOf(domains, rdmaDevices(fakeRdmaSystem()), interfaces);
}

describe("railsOf", () => {
  it("puts together what libfabric, sysfs and the interfaces tell of an address", () => {
    expect(rails()).toEqual([
      // Two ports have no interface in sysfs, so the port of this address is unknown.
      { device: "mlx5_0", port: 0, interface: "ib0", address: "10.99.0.1", gids: [] },
      {
        device: "rxe0",
        port: 1,
        interface: "eth0",
        address: "fd00:1::1",
        gids: ["fe80::a06a:5bff:fec4:8cc3", "::ffff:a4d:101"],
      },
      {
        device: "rxe0",
        port: 1,
        interface: "eth0",
        address: "10.77.1.1",
        gids: ["fe80::a06a:5bff:fec4:8cc3", "::ffff:a4d:101"],
      },
      {
        device: "siw0",
        port: 1,
        interface: "eth1",
        address: "10.77.2.1",
        gids: ["bed4:b1b6:bf35::"],
      },
    ]);
  });

  it("knows a domain's device", () => {
    expect(["mlx5_0", "mlx5_0-xrc", "rxe0-dgram", "my-device"].map(deviceOfDomain)).toEqual([
      "mlx5_0",
      "mlx5_0",
      "rxe0",
      "my-device",
    ]);
  });
});

describe("a choice", () => {
  it.each([
    [{}, ["10.99.0.1", "fd00:1::1", "10.77.1.1", "10.77.2.1"]],
    [{ device: "rxe0" }, ["fd00:1::1", "10.77.1.1"]],
    [{ device: "rxe0:1" }, ["fd00:1::1", "10.77.1.1"]],
    [{ device: "rxe0:2" }, []],
    [{ interface: "eth1" }, ["10.77.2.1"]],
    [{ subnet: "10.77.0.0/16" }, ["10.77.1.1", "10.77.2.1"]],
    [{ subnet: "fd00:1::/32" }, ["fd00:1::1"]],
    [{ subnet: "10.77.0.0/16", device: "siw0" }, ["10.77.2.1"]],
    // The identifier of an address selects this address only, any other identifier selects its interface.
    [{ gid: "::ffff:10.77.1.1" }, ["10.77.1.1"]],
    [{ gid: "fe80::a06a:5bff:fec4:8cc3" }, ["fd00:1::1", "10.77.1.1"]],
    [{ gid: "bed4:b1b6:bf35::" }, ["10.77.2.1"]],
    [{ gid: "fe80::1" }, []],
  ])("%j takes %j", (options, addresses) => {
    const all = rails();
    const choice = verbsChoice("test", "verbs", options);
    expect(all.filter((rail) => fits(rail, choice, all)).map(({ address }) => address)).toEqual(addresses);
  });
});

it("one rail for each port is its IPv4 address where it has one", () => {
  expect(oneForEachPort(rails()).map(({ address }) => address)).toEqual([
    "10.99.0.1",
    "10.77.1.1",
    "10.77.2.1",
  ]);
  const [, six] = rails();
  expect(oneForEachPort([six as Rail])).toEqual([six]);
});

it("rails are listed for people", () => {
  const [first, , third] = rails();
  expect(listRails([first as Rail, third as Rail])).toBe("mlx5_0 ib0 10.99.0.1, rxe0:1 eth0 10.77.1.1");
});
