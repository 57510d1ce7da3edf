// `npm run demo:storage [-- OPTION …]`: sets up what the demo of disks needs, then becomes it.
import { SetupError } from "./setup/command.mjs";
import { installPrograms } from "./setup/programs.mjs";
import { runExample } from "./setup/run-example.mjs";

await runExample("demo/storage/main", async () => {
  try {
    const clients = { "qemu-img": "qemu-utils", nbdcopy: "libnbd-bin" };
    if (!process.argv.includes("--mirror")) await installPrograms("NBD is left out", clients);
    else
      await installPrograms("there is no mirror", {
        ...clients,
        "qemu-storage-daemon": "qemu-system-common",
      });
  } catch (error) {
    if (!(error instanceof SetupError)) throw error;
    console.log(`[setup] ${error.message} ${error.advice ?? ""}`);
  }
});
