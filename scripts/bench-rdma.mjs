// `npm run bench:rdma [-- rxe|siw] [WORKLOAD…] [OPTION…]`: boots the guest of test/rdma and measures there, over each of
// its devices, calls and transfers beside tcp through the same virtual cable, the bare port beside libfabric's own
// ping-pong, and what registrations cost. Workloads and options are those of `npm run bench`. Without workloads the
// results go to bench/results/.
import { join } from "node:path";
import { endChildrenOnSignal, live, root } from "./setup/command.mjs";
import { installPrograms } from "./setup/programs.mjs";
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
/** Files of the guest lie in memory, which devices may write; those of a disk's file system they may not. */
const needsDisk = options.includes("writable-file");
const onDisk = [
  ...["sh", "-ec"],
  "mkdir /tmp/disk; truncate -s 96M /tmp/disk.img; mkfs.ext4 -q /tmp/disk.img; mount $(losetup --find --show /tmp/disk.img) /tmp/disk;" +
    ' export TMPDIR=/tmp/disk; exec "$@"',
  "sh",
];
try {
  await setUp("bench");
  if (needsDisk) await installPrograms("files cannot be measured", { "mkfs.ext4": "e2fsprogs" });
  await prepareGuest();
} catch (error) {
  reportFailure(error);
  process.exit(1);
}
for (const [name, host] of chosen) {
  const ending = await live(guest, [
    ...["--timeout", limitSeconds, "--out", folder, "--", ...(needsDisk ? onDisk : []), "env", smallBuffers],
    ...[process.execPath, "build/bench/main.js", ...(isUsual ? usual : []), "--quick", "--round-ms", "400"],
    ...["--verbs", host, "--contenders", "verbs,tcp-link"],
    ...(isUsual ? ["--json", join(folder, `rdma-${name}.json`)] : []),
    ...["--machine", `the guest of test/rdma, ${name}`, "--device", name, ...options],
  ]);
  if (ending !== "0") process.exitCode = 1;
}
