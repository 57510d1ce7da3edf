// The thread of a failure detector: it goes on while the main thread computes.
import { parentPort, workerData } from "node:worker_threads";
import type { DetectorEvent } from "../detector/detector.ts";
import { Roster } from "../detector/opinions.ts";
import { Seal } from "./datagrams.ts";
import type { Notice, Orders, Request } from "./detector-thread.ts";
import { MainThreadWatch } from "./detector-thread.ts";
import { Driver } from "./driver.ts";

const port = parentPort;
const tell = (notice: Notice) => port?.postMessage(notice);

async function run(orders: Orders): Promise<void> {
  const { self, members, group, detector, stalledAfterMs, key } = orders;
  const roster = new Roster(members);
  const seal = key && new Seal(key);
  const onEvent = (event: DetectorEvent) => tell({ kind: "event", event });
  const driver = await Driver.start({ self, roster, detector, group, seal, onEvent });
  const watch = new MainThreadWatch(stalledAfterMs, (number) => tell({ kind: "are-you-there", number }));
  const timer = setInterval(() => driver.setStalled(watch.check(driver.awakeMs())), stalledAfterMs / 4);
  port?.on("message", async (request: Request) => {
    if (request.kind === "here") watch.onAnswer(request.number);
    else if (request.kind === "adopt") driver.adopt(new Roster(request.members));
    else if (request.kind === "stats") tell({ kind: "stats", stats: driver.stats });
    else if (request.kind === "leave") {
      await driver.leave();
      tell({ kind: "left" });
    } else {
      clearInterval(timer);
      await driver.close();
      port.close();
    }
  });
  tell({ kind: "ready" });
}

run(workerData as Orders).catch((error: unknown) => {
  tell({ kind: "failed", message: error instanceof Error ? error.message : String(error) });
  port?.close();
});
