import { existsSync } from "node:fs";
import { type DetectorEvent, FailureDetector, type FailureDetectorOptions } from "cinnabar-group";
import { obey, settings, tell } from "../../../../test/processes/programs/commands.ts";

// A member of a group whose detector reports every event to its test.
const options = settings<Omit<FailureDetectorOptions, "onEvent">>();
const onEvent = (event: DetectorEvent) => tell(event.type, event);
const detector = await FailureDetector.open({ ...options, onEvent });

obey({
  stats: () => detector.stats(),
  statusOf: (member: number) => detector.statusOf(member),
  leave: () => detector.leave(),
  /** Nothing runs on the main thread while there is such a file. The test gets a report before. */
  block(file: string) {
    setImmediate(() => {
      tell("blocking");
      const word = new Int32Array(new SharedArrayBuffer(4));
      // Bounded: a test that has failed leaves its file behind.
      for (const until = performance.now() + 60_000; existsSync(file) && performance.now() < until; )
        Atomics.wait(word, 0, 0, 20);
      tell("unblocked");
    });
  },
});
tell("ready");
