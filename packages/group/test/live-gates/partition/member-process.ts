// A member of a group in etcd. It calls other members all the time, closes its engine when it may have been removed, and
// joins again.
import { once } from "node:events";
import { setTimeout as pause } from "node:timers/promises";
import { Engine, implement, service, unary } from "cinnabar/standard";
import { messageSchema } from "../../../src/collective/message-schema.ts";
import { etcdAuthority } from "../../../src/etcd/etcd-authority.ts";
import type { Group } from "../../../src/group/group.ts";
import { joinGroup } from "../../../src/group/join-group.ts";
import { monotonicMs } from "../monotonic.ts";
import type { Order, Report } from "./orders.ts";

/** How often this member begins a call. */
const callEveryMs = 200;

const answer = messageSchema<{ readonly rank: number }>("an answer", { rank: Number.isInteger });
const Standing = service("live-gates.standing.v1", { who: unary({ output: answer, idempotent: true }) });

// A report that cannot be sent is dropped: the parent is gone, and this process ends, too.
const tell = (report: Report) => void process.send?.(report, undefined, undefined, () => {});

/** One membership in the group. Resolves when it has ended. */
async function live(order: Order): Promise<void> {
  const { rank, ip, etcd, leaseMs, periodMs, evictReported } = order;
  const standing = implement(Standing, { who: () => ({ rank }) });
  await using engine = await Engine.open({ listen: `tcp://${ip}:7400` });
  const ended = new AbortController();
  const left = once(ended.signal, "abort");
  const end = (why: "lost" | "excluded") => {
    if (ended.signal.aborted) return;
    tell({ kind: "stopped", atMs: monotonicMs(), why });
    // A process that may have been removed must not go on serving.
    void engine.close();
    ended.abort();
  };
  await using group = await joinGroup("live-gates", {
    ...{ engine, serve: [standing], rank, onExcluded: () => end("excluded") },
    authority: etcdAuthority({
      ...{ endpoints: etcd, leaseMs, evictReported, whenUnreachable: "end" },
      // What is sent while the network is parted is lost, so another try must not wait for long.
      requestTimeoutMs: 1000,
    }),
    detector: { address: `${ip}:7946`, options: { periodMs } },
  });
  group.on("lost", () => end("lost"));
  group.on("view", () => tellView(group));
  tellView(group);
  void callOthers(group, rank, ended.signal);
  await left;
}

function tellView({ view: { version, members } }: Group): void {
  tell({ kind: "view", atMs: monotonicMs(), version, ranks: members.map(({ rank }) => rank) });
}

async function callOthers(group: Group, self: number, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    const others = group.view.members.filter(({ rank }) => rank !== self);
    const other = others[Math.floor(Math.random() * others.length)];
    if (other !== undefined) void call(group, other.rank);
    await pause(callEveryMs);
  }
}

async function call(group: Group, to: number): Promise<void> {
  const begunMs = monotonicMs();
  // Those that fail are many while the network is parted, and what counts is who answers.
  await group
    .at(to)
    .client(Standing)
    .who({ timeoutMs: 1000 })
    .then(
      () => tell({ kind: "call", to, begunMs }),
      () => {},
    );
}

process.on("message", async (order: Order) => {
  for (;;) {
    // etcd is out of reach, or another member was first.
    await live(order).catch(() => pause(500));
  }
});
process.on("disconnect", () => process.exit());
tell({ kind: "here" });
