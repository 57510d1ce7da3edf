import { availableParallelism } from "node:os";
import { systemClock } from "../call/clock.ts";
import { Engine } from "../engine/engine.ts";
import { channels } from "../observe/channels.ts";
import { publishedUrls } from "./addresses.ts";
import { Lane, type LaneDeath } from "./lane.ts";
import { LaneHost } from "./lane-host.ts";
import { closeServices, type LaneServices, loadServices } from "./lane-module.ts";
import { startsTooLong } from "./lane-thread.ts";
import { type LanesOptions, type ResolvedLanesOptions, resolveLanesOptions } from "./options.ts";

/**
 * Serves what a module gives in several worker threads behind one address. The module is loaded once in each, and once here (see `front`); it has as its default export, or as `serve`, what `implement` returns,
 * or a function of `{ lane, lanes, data }` that returns it. Resolves when every lane listens; all or nothing. Clients connect to the published address as to any engine.
 *
 * @throws TypeError or RangeError for bad options; RpcError `invalid_argument` or `unimplemented` when no RDMA device fits an address, `failed_precondition`, which names the module, when it cannot be loaded or gives no services, `already_exists` when an address
 * is in use, `deadline_exceeded` when it takes longer than `startTimeoutMs`; DataCloneError for data that cannot be cloned.
 */
export async function openLanes(module: URL | string, options: LanesOptions): Promise<LaneHost> {
  const asked = resolveLanesOptions(module, options, availableParallelism());
  const listen = publishedUrls(asked.listen, asked.lanes, asked.firstLanePort);
  const resolved = { ...asked, listen };
  let host: LaneHost | undefined;
  const served = new Set<number>();
  const owner = {
    onLaneChanged(lane: Lane) {
      if (lane.state === "serving") served.add(lane.number);
      host?.publish();
      if (lane.state === "serving" && channels.laneServing.hasSubscribers) {
        const { number, urls, incarnation } = lane;
        channels.laneServing.publish({ lane: number, urls, incarnation });
      }
    },
    onLaneDied(death: LaneDeath) {
      if (channels.laneDied.hasSubscribers) channels.laneDied.publish(death);
      // One that cannot even start ends the opening, and is told of there.
      if (host !== undefined || served.has(death.lane)) resolved.onLaneDied(death);
    },
  };
  const lanes: Lane[] = [];
  let loading: Promise<LaneServices> | undefined;
  try {
    for (let number = 0; number < resolved.lanes; number++) lanes.push(new Lane(number, resolved, owner));
    loading = frontServices(resolved);
    const [services] = await Promise.all([
      inTime(loading, resolved),
      ...lanes.map((lane) => lane.firstServing()),
    ]);
    const front = await Engine.open({ ...resolved.engine, listen: resolved.listen, serve: services.serve });
    host = new LaneHost(front, lanes, services);
    return host;
  } catch (error) {
    // Whenever it comes: nobody will serve them.
    loading?.then((services) => closeServices(services, "the front")).catch(() => {});
    await Promise.all(lanes.map((lane) => lane.close()));
    throw error;
  }
}

/** What this thread serves to those who know no lanes. */
async function frontServices({ module, lanes, data, front }: ResolvedLanesOptions): Promise<LaneServices> {
  if (front === "refer") return { serve: [] };
  return loadServices(module, { lane: "front", lanes, data: structuredClone(data) });
}

/** As a lane's thread does, the front has so long. The threads of the lanes keep the process alive meanwhile, the timer does not: the opening may have failed before. */
function inTime<T>(loading: Promise<T>, { module, startTimeoutMs }: ResolvedLanesOptions): Promise<T> {
  return new Promise((resolve, reject) => {
    const tooLong = () => reject(startsTooLong("the front", module, startTimeoutMs));
    const cancel = systemClock.timer(startTimeoutMs, tooLong, true);
    loading.then(resolve, reject).finally(cancel);
  });
}
