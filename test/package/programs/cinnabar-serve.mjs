// For the installed package cinnabar-serve: a component starts with its configuration, and stops.
import assert from "node:assert/strict";
import { application, component, startApplication } from "cinnabar-serve";

let stopped = false;
const only = component({
  start: () => ({
    value: 7,
    stop: async () => {
      stopped = true;
    },
  }),
});
const started = await startApplication(application("app", { only }));
assert.equal(started.values.only, 7);
assert.deepEqual([await started.stop(), stopped], [[], true]);
console.log("cinnabar-serve works");
