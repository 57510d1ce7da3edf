import { describe, expect, it } from "vitest";
import { rdmaDevices } from "./devices.ts";
import { fakeRdmaSystem, fakeSystem } from "./fake-system.test-support.ts";

describe("rdmaDevices", () => {
  it("tells devices by what they speak", () => {
    expect(rdmaDevices(fakeRdmaSystem()).map(({ device, transport }) => [device, transport])).toEqual([
      ["mlx5_0", "InfiniBand"],
      ["rxe0", "RoCE"],
      ["siw0", "iWARP"],
    ]);
  });

  it("reads a port with its identifiers in use and the interface behind it", () => {
    const rxe = rdmaDevices(fakeRdmaSystem()).find(({ device }) => device === "rxe0");
    expect(rxe).toEqual({
      device: "rxe0",
      transport: "RoCE",
      firmware: "",
      guid: "a06a:5bff:fec4:8cc3",
      ports: [
        {
          port: 1,
          state: "ACTIVE",
          physicalState: "LinkUp",
          linkLayer: "Ethernet",
          rate: "10 Gb/sec (1X FDR10)",
          gids: [
            {
              index: 0,
              gid: "fe80:0000:0000:0000:a06a:5bff:fec4:8cc3",
              type: "RoCE v2",
              interface: "eth0",
            },
            {
              index: 1,
              gid: "0000:0000:0000:0000:0000:ffff:0a4d:0101",
              type: "RoCE v2",
              interface: "eth0",
            },
          ],
          interfaces: [{ name: "eth0", mtuBytes: 1500 }],
        },
      ],
    });
  });

  it("reads a port that is down and has no interface", () => {
    const [mlx5] = rdmaDevices(fakeRdmaSystem());
    expect(mlx5?.ports[0]?.interfaces).toEqual([]);
    expect(mlx5?.ports[1]).toMatchObject({ port: 2, state: "DOWN", physicalState: "Disabled", gids: [] });
  });

  it("finds none where the kernel has none, and lives with a device that says nothing", () => {
    expect(rdmaDevices("/nonexistent")).toEqual([]);
    const bare = fakeSystem({ "class/infiniband/odd0/node_type": "7: unknown\n" });
    expect(rdmaDevices(bare)).toEqual([
      { device: "odd0", transport: "other", firmware: "", guid: "", ports: [] },
    ]);
  });
});
