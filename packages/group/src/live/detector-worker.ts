// The thread of a failure detector: it goes on while the main thread computes.
import { parentPort, workerData } from "node:worker_threads";
import { Roster } from "../detector/roster.ts";
import { transportOf } from "./address.ts";
import { type DetectorCredentials, EngineSecurity } from "./detector-security.ts";
import { Driver } from "./driver.ts";
import { MainThreadWatch } from "./main-thread-watch.ts";
import type { Notice, Orders, Request } from "./protocol.ts";
import { Seal } from "./seal.ts";
import type { OpenTransport } from "./transport.ts";
import { openUdp } from "./udp-transport.ts";

const port = parentPort;
const tell = (notice: Notice) => port?.postMessage(notice);

async function run(orders: Orders): Promise<void> {
  const { self, members, group, detector, stalledAfterMs, key } = orders;
  const roster = new Roster(members);
  const seal = key && new Seal(key);
  const security = orders.security && new EngineSecurity(orders.security);
  delete orders.security;
  const driver = await Driver.start(
    { self, roster, detector, group, seal, onEvent: (event) => tell({ kind: "event", event }) },
    await transportFor(roster.require(self).addresses[0], detector.periodMs, security),
  );
  const watch = new MainThreadWatch(stalledAfterMs, (number) => tell({ kind: "are-you-there", number }));
  const timer = setInterval(() => driver.setStalled(watch.check(driver.awakeMs())), stalledAfterMs / 4);
  port?.on("message", async (request: Request) => {
    if (request.kind === "here") watch.onAnswer(request.number);
    else if (request.kind === "adopt") driver.adopt(new Roster(request.members));
    else if (request.kind === "stats") tell({ kind: "stats", stats: driver.stats });
    else if (request.kind === "reload")
      tell({ kind: "reloaded", fault: faultOf(() => reload(request.security)) });
    else if (request.kind === "leave") {
      await driver.leave();
      tell({ kind: "left" });
    } else {
      clearInterval(timer);
      await driver.close();
      port.close();
    }
  });
  function reload(credentials: DetectorCredentials): void {
    security?.replace(credentials, () => driver.reloadSecurity());
  }
  tell({ kind: "ready" });
}

/** A detector that sends datagrams loads no engine. */
async function transportFor(
  address: string,
  packetTimeoutMs: number,
  security: EngineSecurity | undefined,
): Promise<OpenTransport> {
  if (transportOf(address) === "udp") return openUdp;
  const { openFabric } = await import("./fabric-transport.ts");
  return openFabric({ packetTimeoutMs, ...(security && { security: security.options }) });
}

function faultOf(run: () => void): string | undefined {
  try {
    run();
    return undefined;
  } catch (error) {
    return messageOf(error);
  }
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

run(workerData as Orders).catch((error: unknown) => {
  tell({ kind: "failed", message: messageOf(error) });
  port?.close();
});
