// A member of a live group: a process with a real detector, which carries out the orders of its group.
import { FailureDetector } from "../../src/live/failure-detector.ts";
import { monotonicMs } from "./monotonic.ts";
import type { Order, Report } from "./orders.ts";

let detector: FailureDetector | undefined;
// A report that cannot be sent is dropped: the parent is gone, and this process ends, too.
const tell = (report: Report) => void process.send?.(report, undefined, undefined, () => {});

async function start({ self, members, detector, stalledAfterMs }: Order & { kind: "start" }) {
  return FailureDetector.open({
    ...{ group: "live-gates", self, members, detector, stalledAfterMs },
    onEvent: (event) => tell({ kind: "event", atMs: monotonicMs(), event }),
  });
}

async function obey(order: Order): Promise<void> {
  if (order.kind === "start") {
    detector = await start(order);
    tell({ kind: "ready" });
  } else if (order.kind === "adopt") detector?.adopt(order.members);
  else if (order.kind === "compute") {
    for (const untilMs = monotonicMs() + order.forMs; monotonicMs() < untilMs; );
  } else if (detector !== undefined) {
    const { user, system } = process.cpuUsage();
    tell({
      kind: "stats",
      atMs: monotonicMs(),
      stats: await detector.stats(),
      cpuMs: (user + system) / 1000,
    });
  }
}

process.on("message", obey);
// The parent is gone, so no order would end this process.
process.on("disconnect", () => process.exit());
