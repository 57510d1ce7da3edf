import { describe, expect, it } from "vitest";
import { quickRatios, ratiosOf } from "../../bench/suite/ratios.ts";
import { figure, resultsWith } from "./support/samples.ts";

const more = { better: "more", unit: "GB/s" } as const;

describe("the named ratios", () => {
  it("are those that are promised", () => {
    expect(quickRatios.map(({ name }) => name).sort()).toEqual(
      [
        "shm.small.1.p50_vs_grpc",
        "shm.small.1.p50_vs_unix",
        "shm.small.64.ops_vs_net",
        "shm.small.64.ops_vs_grpc",
        "tcp.small.1.p50_vs_net",
        "tcp.small.1.p50_vs_grpc",
        "tcp.small.64.ops_vs_net",
        "shm.bulk.16MiB.gbps_vs_net",
        "shm.bulk.16MiB.gbps_vs_grpc",
        "tcp.bulk.16MiB.gbps_vs_net",
        "tcp.bulk.1MiB.gbps_vs_floor",
        ...["p50", "ops"].flatMap((measure) =>
          ["net", "grpc"].map((peer) => `net.small.${measure === "p50" ? 1 : 64}.${measure}_vs_${peer}`),
        ),
        "net.bulk.16MiB.gbps_vs_net",
        "net.bulk.16MiB.gbps_vs_grpc",
        "shm.stream.items_vs_net",
        "shm.stream.items_vs_grpc",
        "tcp.stream.items_vs_net",
        "tcp.stream.items_vs_grpc",
        "shm.group.broadcast16_vs_grpc",
        "tcp.group.broadcast16_vs_grpc",
        "shm.oneway.ops_vs_call",
        "idle_cpu_percent",
      ].sort(),
    );
  });

  it("are ours divided by theirs, round by round", () => {
    const { ratios } = resultsWith([
      figure("tcp.small.1.p50_us", [10, 100, 20]),
      figure("net-tcp.small.1.p50_us", [40, 200, 40]),
    ]);
    expect(ratios).toEqual({ "tcp.small.1.p50_vs_net": 0.5 });
  });

  it("take whichever of theirs does better", () => {
    const [ratio] = ratiosOf([
      figure("shm.small.1.p50_us", [10, 10, 10]),
      figure("grpc-tcp.small.1.p50_us", [400, 400, 400]),
      figure("grpc-unix.small.1.p50_us", [500, 200, 200]),
    ]);
    expect(ratio).toMatchObject({ theirs: "grpc-unix.small.1.p50_us", median: 0.05 });
  });

  it("take whichever of get and put does worse", () => {
    const [ratio] = ratiosOf([
      figure("tcp.bulk.16MiB.get_gbps", [4, 4, 4], more),
      figure("tcp.bulk.16MiB.put_gbps", [3, 3, 3], more),
      figure("net-tcp.bulk.16MiB.gbps", [2, 2, 2], more),
    ]);
    expect(ratio).toMatchObject({ ours: "tcp.bulk.16MiB.put_gbps", median: 1.5 });
  });

  it("hold verbs against tcp that goes the same way, get and put each for itself", () => {
    const { ratios } = resultsWith([
      figure("verbs.small.1.p50_us", [30]),
      figure("tcp-link.small.1.p50_us", [20]),
      figure("tcp.small.1.p50_us", [10]),
      figure("verbs.bulk.16MiB.get_gbps", [3], more),
      figure("tcp-link.bulk.16MiB.get_gbps", [2], more),
      figure("verbs.bulk.16MiB.put_gbps", [1], more),
      figure("tcp-link.bulk.16MiB.put_gbps", [2], more),
    ]);
    expect(ratios).toEqual({
      "verbs.small.1.p50_vs_tcp": 1.5,
      "verbs.bulk.16MiB.get_gbps_vs_tcp": 1.5,
      "verbs.bulk.16MiB.put_gbps_vs_tcp": 0.5,
    });
  });

  it("leave out what was not measured, in part or at all", () => {
    expect(
      ratiosOf([
        figure("tcp.bulk.16MiB.get_gbps", [4], more),
        figure("net-tcp.bulk.16MiB.gbps", [2], more),
        figure("shm.small.1.p50_us", [10]),
      ]),
    ).toEqual([]);
  });

  it("have what stands for itself as it is", () => {
    const { ratios } = resultsWith([figure("idle_cpu_percent", [0.2, 0.4, 0.3])]);
    expect(ratios).toEqual({ idle_cpu_percent: 0.3 });
  });
});
