// `npm run bench:rdma [-- rxe|siw] [WORKLOAD…] [OPTION…]`: boots the guest of test/rdma and measures there, over each of
// its devices, calls and transfers beside tcp through the same virtual cable, the bare port beside libfabric's own
// ping-pong, and what registrations cost. Workloads and options are those of `npm run bench`. Without workloads the
// results go to bench/results/.
import { join } from "node:path";
import { endChildrenOnSignal, live, root } from "./setup/command.mjs";
import { reportFailure, setUp } from "./setup/set-up.mjs";
import { devices, guest, prepareGuest, smallBuffers } from "./test/rdma.mjs";

const folder = join(root, "bench", "results");
/** A device's run takes a minute and a half on two quiet cores. */
const limitSeconds = "900";

endChildrenOnSignal();
const args = process.argv.slice(2);
const isDevice = (/** @type {string} */ arg) => arg in devices;
const chosen = Object.entries(devices).filter(([name]) => !args.some(isDevice) || args.includes(name));
const options = args.filter((arg) => !isDevice(arg));
const isUsual = options[0] === undefined || options[0].startsWith("-");
const usual = ["small", "bulk", "floor", "bulk-registration"];
try {
  await setUp("bench");
  await prepareGuest();
} catch (error) {
  reportFailure(error);
  process.exit(1);
}
for (const [name, host] of chosen) {
  const ending = await live(guest, [
    ...["--timeout", limitSeconds, "--out", folder, "--", "env", smallBuffers],
    ...[process.execPath, "build/bench/main.js", ...(isUsual ? usual : []), "--quick", "--round-ms", "400"],
    ...["--verbs", host, "--contenders", "verbs,tcp-link"],
    ...(isUsual ? ["--json", join(folder, `rdma-${name}.json`)] : []),
    ...["--machine", `the guest of test/rdma, ${name}`, "--device", name, ...options],
  ]);
  if (ending !== "0") process.exitCode = 1;
}
