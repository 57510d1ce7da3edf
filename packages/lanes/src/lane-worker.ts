// What runs in a lane's thread: an engine that serves what the lane's module gives.
import { type MessagePort, parentPort, workerData } from "node:worker_threads";
import { Engine } from "cinnabar/standard";
import { closeServices, loadServices } from "./lane-module.ts";
import { EngineSecurity } from "./lane-security.ts";
import { type LaneMessage, type LaneOrders, type LaneQuestion, tellError } from "./messages.ts";
import { dividedMemory } from "./options.ts";

const dispatcher = parentPort as MessagePort;
const say = (message: LaneMessage): void => dispatcher.postMessage(message);

try {
  await serve(workerData as LaneOrders);
} catch (error) {
  say({ said: "failed", error: tellError(error) });
}

async function serve(orders: LaneOrders): Promise<void> {
  const { module, lane, lanes, data, listen, engine: options, security: given } = orders;
  // Everything in the thread can read `workerData`, and the key is among them.
  delete orders.security;
  const services = await loadServices(module, { lane, lanes, data }, given !== undefined);
  const security = new EngineSecurity(given, services.security);
  const secured = security.options === undefined ? {} : { security: security.options };
  const own = dividedMemory(options, lanes + 1);
  const engine = await Engine.open({ ...own, ...secured, listen, serve: services.serve });
  let closed: Promise<void> | undefined;
  const answer = async (question: LaneQuestion): Promise<unknown> => {
    if (question.ask === "stats") return engine.stats({ histograms: question.histograms });
    if (question.ask === "reloadSecurity") return security.reload(engine, question.security);
    const report = question.ask === "drain" ? await engine.drain({ graceMs: question.graceMs }) : undefined;
    await engine.close();
    // A close may be asked for in the middle of a drain.
    closed ??= closeServices(services, `lane ${lane}`);
    await closed;
    return report;
  };
  dispatcher.on("message", (question: LaneQuestion) => {
    answer(question).then(
      (value) => say({ said: "answer", id: question.id, value }),
      (error) => say({ said: "refused", id: question.id, error: tellError(error) }),
    );
  });
  say({ said: "listening", urls: engine.urls, incarnation: engine.incarnation });
}
