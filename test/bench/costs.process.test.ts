import { describe, expect, it } from "vitest";
import type { Figure } from "../../bench/suite/figure.ts";
import { summarize } from "../../bench/suite/statistics.ts";
import type { Run } from "../../bench/suite/workload.ts";
import { isLong } from "../matrix/long.ts";
import { underSanitizers } from "../processes/support/fabrics.ts";

/** Workloads start processes, so they run as they are built: `npm run setup` builds them. */
const built = (name: string) =>
  import(new URL(`../../build/bench/workloads/${name}.js`, import.meta.url).href);

const run: Run = { quick: false, rounds: 1, roundMs: 50, tell: () => {}, lack: () => {} };

function expectFigures(figures: readonly Figure[], ...names: readonly string[]): void {
  expect(figures.map(({ name }) => name)).toEqual(expect.arrayContaining([...names]));
  expect(new Set(figures.map(({ name }) => name)).size).toBe(figures.length);
  for (const { name, rounds } of figures) {
    expect(rounds.length, name).toBeGreaterThan(0);
    for (const round of rounds) expect(Number.isFinite(round), name).toBe(true);
  }
}

const middleOf = (figures: readonly Figure[], name: string): number =>
  summarize(figures.find((figure) => figure.name === name)?.rounds ?? []).median;

// Each of these starts half a dozen processes, and more; the short form has two. What is measured means nothing there,
// and takes far longer.
describe.skipIf(underSanitizers)("what calls cost, at a tiny size", () => {
  it.runIf(isLong)("tells of memory by peer and by call", async () => {
    const { measureMemory } = await built("memory");
    const sizes = { memPeers: [50, 100], memEngines: 10, realPeers: 2, pending: 20_000, streams: 5_000 };
    const figures: Figure[] = await measureMemory(run, sizes);
    expectFigures(
      figures,
      "mem.idle_peers.100.bytes_per_peer",
      "mem.idle_engines.10.bytes_per_peer",
      "tcp.idle_peers.2.server_bytes_per_peer",
      "shm.pending.sent.caller_bytes_per_call",
      "shm.idle_stream.callee_bytes",
    );
    // Bounds on the heap, which is the same on every machine: far from what is aimed at, near enough for a leak or a
    // closure too many to show.
    expect(middleOf(figures, "mem.pending.sent.bytes_per_call")).toBeLessThan(2_000);
    expect(middleOf(figures, "shm.pending.sent.caller_bytes_per_call")).toBeLessThan(1_000);
    expect(middleOf(figures, "shm.idle_stream.callee_own_bytes")).toBeLessThan(1_400);
    expect(middleOf(figures, "shm.idle_stream.caller_own_bytes")).toBeLessThan(1_200);
  });

  it.runIf(isLong)("tells how cost grows with clients and with idle peers", async () => {
    const { measureScaling } = await built("scaling");
    const figures = await measureScaling(run, { clients: [1, 3], processes: 2, idle: [0, 20], calls: 500 });
    expectFigures(
      figures,
      "shm.scaling.3.server_cpu_us",
      "tcp.scaling.1.calls_per_second",
      "mem.beside_idle.20.cpu_us",
    );
  });

  it.runIf(isLong)("tells what calls cost whose code has left the caches", async () => {
    const { measureCold } = await built("cold");
    const figures = await measureCold(run);
    expectFigures(
      figures,
      "tcp.cold.alone.1.client_user_us",
      "net.cold.swept.1.p50_us",
      "net-unix.cold.swept.1.client_cpu_us",
    );
  });

  it.runIf(isLong)("tells what moves while a thread computes", async () => {
    const { measureStall } = await built("stall");
    const figures: Figure[] = await measureStall(run, { stallMs: 500, bytes: 1 << 20 });
    expectFigures(figures, "shm.stall.computing.put_gbps", "tcp.stall.free.get_gbps", "tcp.stall.losses");
    expect(middleOf(figures, "tcp.stall.computing.put_gbps")).toBeGreaterThan(0);
    expect(middleOf(figures, "tcp.stall.losses")).toBe(0);
  });

  it.runIf(isLong)("tells how a server fares under more load than it can take", async () => {
    const { measureOverload } = await built("overload");
    const sizes = { loadMs: 400, burstCalls: 500, burstMs: 50, variants: 1 };
    const figures: Figure[] = await measureOverload(run, sizes);
    expectFigures(figures, "overload.waiting.x4.CA.goodput", "overload.burst.once.CA.server_mib");
    expect(middleOf(figures, "overload.computing.x1.CA.goodput")).toBeGreaterThan(0);
  });

  it.runIf(isLong)("tells what registration for each call costs, by how often it happens", async () => {
    const { bulkRegistration } = await built("bulk-registration");
    expectFigures(
      await bulkRegistration.run({ ...run, contenders: ["shm", "tcp"] }),
      "shm.registration.1MiB.moved.region_us",
      "tcp.registration.16MiB.lent.call_us",
    );
  });

  it.runIf(isLong)("tells from which size on it pays to lend bytes", async () => {
    const { bulkSmall } = await built("bulk-small");
    expectFigures(
      await bulkSmall.run({ ...run, contenders: ["shm", "tcp"] }),
      "shm.few_bytes.64B.carry_us",
      "tcp.few_bytes.1MiB.lend_kept_us",
    );
  });

  it.runIf(isLong)("tells how long calls of a group take, beside the same by hand", async () => {
    const { measureCollectives } = await built("collectives");
    const figures: Figure[] = await measureCollectives(run, 3);
    expectFigures(
      figures,
      "shm.group.broadcast3.p50_us",
      "tcp.group.broadcast3.binomial.p99_us",
      "shm.group.barrier3.p50_us",
      "grpc-unix.group.broadcast3.p50_us",
    );
    expect(middleOf(figures, "tcp.group.barrier3.p50_us")).toBeGreaterThan(0);
  });

  it("tells what groups cost by their size", async () => {
    const { measureGroupSize } = await built("group-size");
    const figures: Figure[] = measureGroupSize(run, { calls: [2, 64], quiet: [16], crash: [16] });
    expectFigures(figures, "group_size.quiet.16.messages", "group_size.crash.16.periods");
    const call = (tree: string) => middleOf(figures, `group_size.call.${tree}.64.ms`);
    expect(call("4-nomial")).toBeLessThan(call("flat"));
    expect(middleOf(figures, "group_size.quiet.16.messages")).toBeCloseTo(2, 1);
  });

  it("tells where a call's time goes", async () => {
    const { measureLayers } = await built("layers");
    const figures: Figure[] = await measureLayers(run);
    expectFigures(figures, "shm.layers.64.server.codec_us", "tcp.layers.1.client.native_us");
    expect(middleOf(figures, "shm.layers.64.client.scheduling_us")).toBeGreaterThan(0);
  });
});
