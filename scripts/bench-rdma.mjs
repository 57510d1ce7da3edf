// `npm run bench:rdma [-- rxe|siw] [OPTION…]`: boots the guest of test/rdma and measures there, over each of its
// devices, calls and transfers beside tcp through the same virtual cable, and the bare port beside libfabric's own
// ping-pong. Options are those of `npm run bench`. Results: bench/results/.
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
    ...[process.execPath, "build/bench/main.js", "small", "bulk", "floor", "--quick", "--round-ms", "400"],
    ...["--verbs", host, "--contenders", "verbs,tcp-link", "--json", join(folder, `rdma-${name}.json`)],
    ...["--machine", `the guest of test/rdma, ${name}`, ...options],
  ]);
  if (ending !== "0") process.exitCode = 1;
}
