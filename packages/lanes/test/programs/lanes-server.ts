import { subscribe } from "node:diagnostics_channel";
import { closeOnSignals } from "cinnabar";
import { type LanesOptions, openLanes } from "cinnabar-lanes";
import { footprint, obey, settings, tell } from "../../../../test/processes/programs/commands.ts";

export interface LanesServerSettings extends LanesOptions {
  /** A module beside this one. Default: the lanes' service. */
  readonly module?: string;
  readonly data?: object;
}

const { module = "./lane-service.js", data, ...options } = settings<LanesServerSettings>();
const closed = new SharedArrayBuffer(4);
const broken = new SharedArrayBuffer(4);

subscribe("cinnabar:lane.serving", (event) => {
  const { lane, urls } = event as { lane: number; urls: string[] };
  tell("serving", { lane, urls });
});

try {
  const host = await openLanes(new URL(module, import.meta.url), {
    ...options,
    data: { ...data, closed, broken },
    onLaneDied: ({ lane, exitCode, error, replacedInMs, deaths }) =>
      tell("died", { lane, exitCode, message: error?.message, replacedInMs, deaths }),
  });
  closeOnSignals(host, {
    graceMs: 5000,
    onDrained: ({ aborted }) => {
      tell("drained", { aborted: aborted.map(({ method }) => method) });
      process.disconnect();
    },
  });
  obey({
    lanes: () => host.lanes.map(({ lane, state, urls, deaths }) => ({ lane, state, urls, deaths })),
    stats: async () => {
      // Both at once: a lane is asked for each.
      const [{ dispatcher, lanes }, full] = await Promise.all([
        host.stats(),
        host.stats({ histograms: true }),
      ]);
      return {
        timed: full.lanes.map(({ engine }) => engine?.methods[0]?.latencyMsByCode?.ok?.count),
        histograms: lanes.some(({ engine }) => engine?.methods[0]?.latencyMsByCode !== undefined),
        dispatcher: dispatcher.counters.requestsStarted,
        sessions: dispatcher.sessions,
        lanes: lanes.map(({ engine }) => engine?.counters.requestsStarted),
      };
    },
    /** The health of the service in each lane. */
    health: async () =>
      (await host.stats()).lanes.map(({ engine }) =>
        engine?.health.find(({ service }) => service === "laned.v1"),
      ),
    drain: (graceMs: number) => host.drain({ graceMs }),
    close: () => host.close(),
    drainAndClose: async () => {
      const drained = host.drain({ graceMs: 60_000 });
      // The lanes have been asked by the time that they are asked for this.
      await host.stats();
      await host.close();
      return (await drained).aborted.length;
    },
    /** Whether the module throws from now on when it is loaded. */
    break: (isBroken: boolean) => void new Int32Array(broken).fill(isBroken ? 1 : 0),
    /** How many of the modules' `close` have been called. */
    closed: () => new Int32Array(closed)[0],
    footprint,
    exit: () => void setImmediate(() => process.disconnect()),
  });
  tell("listening", { urls: host.urls, lanes: host.lanes.length });
} catch (error) {
  const { name, message, code } = error as Error & { code?: string };
  tell("failed", { name, message, code });
  process.disconnect();
}
