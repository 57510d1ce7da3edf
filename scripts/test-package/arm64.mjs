import { join } from "node:path";
import { sysroot } from "../package/sysroot.mjs";
import { targets } from "../package/targets.mjs";
import { SetupError } from "../setup/command.mjs";
import { installPrograms } from "../setup/programs.mjs";
import { withInstalled } from "./archives.mjs";
import { Checks, run } from "./cases.mjs";
import { nodeOf } from "./roots.mjs";

/** Versions that qemu can run with the libraries of the sysroot. */
const nodes = [20, 24];

const cannotShow =
  "qemu has no process_vm_readv, so that direct copies between processes over shm are not shown on arm64; it starts no " +
  "child of another architecture without binfmt_misc, so that everything runs in one process";

/**
 * Runs the package's arm64 binaries under qemu-user, over the C library of Debian 11.
 *
 * @param {import("../package/make.mjs").Archives} archives
 * @returns {Promise<import("../test/outcome.mjs").Outcome>}
 */
export async function testOnArm64({ main }) {
  const target = targets.find(({ arch }) => arch === "arm64");
  if (target === undefined) throw new SetupError("There is no target for arm64.");
  await installPrograms("arm64 cannot be emulated here", { "qemu-aarch64-static": "qemu-user-static" });
  const checks = new Checks();
  const libraries = await sysroot(target);
  const addresses = ["mem://a", "tcp://127.0.0.1:0", `shm://emulated-${process.pid}`];
  const emulate = async (/** @type {string} */ folder) => {
    for (const major of nodes) {
      const node = join(await nodeOf(major, "arm64"), "bin", "node");
      const program = join(folder, "first-answers.mjs");
      const words = ["qemu-aarch64-static", "-L", libraries, node, program, ...addresses];
      const { status, output } = await run(words);
      const answers = output.match(/: Hello, |: 16777216 bytes there and back/g)?.length ?? 0;
      const isWhole = status === 0 && answers === 2 * addresses.length;
      const fault = isWhole ? "" : `ended with ${status}, ${answers} answers:\n${output}`;
      checks.note(`arm64, Node ${major}: calls and transfers over mem, tcp and shm`, fault);
    }
  };
  await withInstalled(main, emulate, ["--cpu", "arm64"]);
  console.log(`\nNot shown: ${cannotShow}.`);
  return checks;
}
