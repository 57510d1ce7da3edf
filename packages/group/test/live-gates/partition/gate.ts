import { setTimeout as pause } from "node:timers/promises";
import type { Figure } from "../../gates/figure.ts";
import { liveMembers } from "../live-group.ts";
import { monotonicMs } from "../monotonic.ts";
import { BridgedNetwork } from "./bridged-network.ts";
import { EtcdServer } from "./etcd-server.ts";
import { PartedGroup } from "./parted-group.ts";

const periodMs = 250;
const leaseMs = 10_000;
const partedMs = 20_000;

/** L10: the network parts, with etcd on the side of the many, and heals. */
export async function partition(): Promise<Figure[]> {
  const network = new BridgedNetwork();
  return [...(await parted(network, true)), ...(await parted(network, false))];
}

async function parted(network: BridgedNetwork, evictReported: boolean): Promise<Figure[]> {
  await using etcd = await EtcdServer.start(network.hostIp);
  await using group = await PartedGroup.start(network, {
    ...{ etcd: etcd.url, leaseMs, periodMs, evictReported },
  });
  // The first ranks publish first, as long as they can.
  const few = group.ranks.slice(0, 5);
  const many = group.ranks.slice(5);
  const isFew = (rank: number) => few.includes(rank);

  const cutMs = monotonicMs();
  network.move(few, 1);
  const apartMs = monotonicMs();
  await group.untilAgreed(many, many);
  const removedMs = monotonicMs();
  await pause(Math.max(0, cutMs + partedMs - monotonicMs()));
  const healedMs = monotonicMs();
  network.move(few, 0);
  const views = group.views.filter(({ atMs }) => atMs > cutMs && atMs < healedMs);
  const stops = group.stops.filter(({ atMs }) => atMs > cutMs && atMs < healedMs);
  const calls = group.calls.filter(({ begunMs }) => begunMs > apartMs && begunMs < healedMs);
  await group.untilAgreed(group.ranks, group.ranks);
  const wholeMs = monotonicMs();

  const withoutMs = (rank: number) =>
    Math.min(...views.filter(({ ranks }) => !ranks.includes(rank)).map(({ atMs }) => atMs));
  const ofFewStops = stops.filter(({ by }) => isFew(by));
  const ofFew = calls.filter(({ by, to }) => isFew(by) && isFew(to));
  const line = await etcd.viewsOf("live-gates");
  const published = new Map(line.map(({ version, ranks }) => [version, String(ranks)]));
  const how = evictReported ? "reported deaths and leases decide" : "leases alone decide";
  const run = `${few.length} of ${liveMembers} apart for ${partedMs / 1000} s, T ${periodMs} ms, leases of ${leaseMs / 1000} s, ${how}`;
  return [
    { run, name: "the many have one view without the few, s", value: (removedMs - cutMs) / 1000, max: 20 },
    { run, name: "views that the few got", value: views.filter(({ by }) => isFew(by)).length, max: 0 },
    {
      run,
      name: "of the few closed their engines",
      value: new Set(ofFewStops.map(({ by }) => by)).size,
      min: 5,
    },
    {
      // A lease that was renewed just before ends last, and the machine may report it late.
      ...{ run, name: "the last of them did so, s", max: leaseMs / 1000 + 0.5 },
      value: (Math.max(...ofFewStops.map(({ atMs }) => atMs)) - apartMs) / 1000,
    },
    {
      run,
      name: "of the many closed their engines",
      value: stops.filter(({ by }) => !isFew(by)).length,
      max: 0,
    },
    { run, name: "calls that the few answered each other", value: ofFew.length, min: 1 },
    {
      ...{ run, name: "of these, begun when a view without who answered was published" },
      value: ofFew.filter(({ to, begunMs }) => begunMs > withoutMs(to)).length,
      // A death that is reported removes a member before its lease ends, and it does not know.
      ...(!evictReported && { max: 0 }),
    },
    {
      ...{ run, name: "calls answered across the cut", max: 0 },
      value: calls.filter(({ by, to }) => isFew(by) !== isFew(to)).length,
    },
    {
      ...{ run, name: "versions of etcd that do not follow the one before", max: 0 },
      value: line.filter(({ version }, index) => version !== index + 1).length,
    },
    {
      ...{ run, name: "views of members that etcd has never had", max: 0 },
      value: group.views.filter(({ version, ranks }) => published.get(version) !== String(ranks)).length,
    },
    { run, name: "healed, all have one view of all, s", value: (wholeMs - healedMs) / 1000 },
  ];
}
