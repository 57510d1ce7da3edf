// `npm run test:package [-- --arm64 | --verbs | --sources]`: installs the packages of `npm run package` in bare roots without
// compiler and libfabric, and runs it there as a container would. `--arm64` runs it under qemu instead, `--verbs` on the
// RDMA devices of the guest, and `--sources` with an addon that `cinnabar build` makes. The last line is the sum.
import { parseArgs } from "node:util";
import { endChildrenOnSignal } from "./setup/command.mjs";
import { reportFailure } from "./setup/set-up.mjs";
import { archives } from "./test-package/archives.mjs";
import { testOnArm64 } from "./test-package/arm64.mjs";
import { testFromSources } from "./test-package/from-sources.mjs";
import { testInRoots } from "./test-package/in-roots.mjs";
import { testOnDevices } from "./test-package/verbs.mjs";

endChildrenOnSignal();
try {
  const flag = /** @type {const} */ ({ type: "boolean" });
  const { values } = parseArgs({ options: { arm64: flag, verbs: flag, sources: flag } });
  let test = testInRoots;
  if (values.arm64) test = testOnArm64;
  if (values.verbs) test = testOnDevices;
  if (values.sources) test = testFromSources;
  const { passed, failed, problems, skipped } = await test(archives());
  for (const problem of problems) console.log(`FAILED  ${problem}`);
  if (skipped !== undefined) console.log(skipped);
  console.log(`\n${passed} passed, ${failed} failed`);
  process.exitCode = failed === 0 && (passed > 0 || skipped !== undefined) ? 0 : 1;
} catch (error) {
  reportFailure(error);
  console.log("\n0 passed, 1 failed");
  process.exitCode = 1;
}
