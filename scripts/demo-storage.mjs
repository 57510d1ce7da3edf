// `npm run demo:storage [-- OPTION …]`: sets up what the demo of disks needs, then becomes it.
import { SetupError } from "./setup/command.mjs";
import { installPrograms } from "./setup/programs.mjs";
import { runExample } from "./setup/run-example.mjs";

await runExample("demo/storage/main", async () => {
  try {
    await installPrograms("NBD is left out", { "qemu-img": "qemu-utils", nbdcopy: "libnbd-bin" });
  } catch (error) {
    if (!(error instanceof SetupError)) throw error;
    console.log(`[setup] ${error.message} ${error.advice ?? ""}`);
  }
});
