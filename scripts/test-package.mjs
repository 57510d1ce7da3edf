// `npm run test:package [-- --arm64]`: installs the package of `npm run package` in bare roots without compiler and
// libfabric, and runs it there as a container would. `--arm64` runs it under qemu instead. The last line is the sum.
import { endChildrenOnSignal } from "./setup/command.mjs";
import { reportFailure } from "./setup/set-up.mjs";
import { testOnArm64 } from "./test-package/arm64.mjs";
import { testInRoots } from "./test-package/in-roots.mjs";
import { tarball } from "./test-package/tarball.mjs";

endChildrenOnSignal();
try {
  const test = process.argv.includes("--arm64") ? testOnArm64 : testInRoots;
  const { passed, failed, problems } = await test(tarball());
  for (const problem of problems) console.log(`FAILED  ${problem}`);
  console.log(`\n${passed} passed, ${failed} failed`);
  process.exitCode = failed === 0 && passed > 0 ? 0 : 1;
} catch (error) {
  reportFailure(error);
  console.log("\n0 passed, 1 failed");
  process.exitCode = 1;
}
