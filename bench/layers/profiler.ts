import { Session } from "node:inspector/promises";
import { type Layer, timesByLayer } from "./layer-of.ts";
import { WrittenFiles } from "./written-files.ts";

/** V8's default is a millisecond, in which a hundred calls come and go. */
const samplingIntervalUs = 200;

/** V8's sampling profiler, of this process. */
export class LayerProfiler {
  readonly #session = new Session();

  async begin(): Promise<void> {
    this.#session.connect();
    await this.#session.post("Profiler.enable");
    await this.#session.post("Profiler.setSamplingInterval", { interval: samplingIntervalUs });
    await this.#session.post("Profiler.start");
  }

  /** The shares of the layers in the time that this process has worked since. */
  async end(): Promise<Record<Layer, number>> {
    const { profile } = await this.#session.post("Profiler.stop");
    this.#session.disconnect();
    const files = new WrittenFiles();
    const nodes = profile.nodes.map((node) => ({
      ...node,
      callFrame: { functionName: node.callFrame.functionName, url: files.fileOf(node.callFrame) },
    }));
    const times = timesByLayer({ ...profile, nodes });
    const whole = Object.values(times).reduce((total, time) => total + time, 0);
    return Object.fromEntries(Object.entries(times).map(([layer, time]) => [layer, time / whole])) as Record<
      Layer,
      number
    >;
  }
}
