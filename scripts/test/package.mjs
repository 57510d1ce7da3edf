import { join } from "node:path";
import { arch } from "node:process";
import { makePackages } from "../package/make.mjs";
import { targets } from "../package/targets.mjs";
import { root, SetupError } from "../setup/command.mjs";
import { archives } from "../test-package/archives.mjs";
import { testInRoots } from "../test-package/in-roots.mjs";
import { prepareRoots } from "../test-package/roots.mjs";
import { testOnDevices } from "../test-package/verbs.mjs";
import { together } from "./outcome.mjs";

/** Apart from dist-packages/, since it has binaries for this machine alone. */
const folder = join(root, "build", "packages");

/** Makes the packages for this machine, and the roots for their tests; takes minutes without cached parts. */
export async function preparePackage() {
  const own = targets.filter((target) => target.arch === arch);
  if (arch !== "x64") throw new SetupError(`The roots are for x64, and this machine is ${arch}.`);
  await makePackages(own, folder);
  await prepareRoots();
}

/**
 * Installs and runs the packages, in bare roots and on the devices of the guest; for a stage of `npm test`.
 *
 * @returns {Promise<import("./outcome.mjs").Outcome>}
 */
export async function testPackage() {
  const made = archives(folder);
  const inRoots = await testInRoots(made);
  const onDevices = await testOnDevices(made);
  if (onDevices.skipped !== undefined) console.log(onDevices.skipped);
  return together([inRoots, onDevices]);
}
