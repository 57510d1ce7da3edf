import { cpSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { sysroot } from "../package/sysroot.mjs";
import { targets } from "../package/targets.mjs";
import { SetupError, step } from "../setup/command.mjs";
import { installPrograms } from "../setup/programs.mjs";
import { programs } from "./archives.mjs";
import { run } from "./cases.mjs";
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
  const work = mkdtempSync(join(tmpdir(), "cinnabar-arm64-"));
  const problems = [];
  let passed = 0;
  try {
    writeFileSync(join(work, "package.json"), "{}");
    const where = ["--prefix", work, "--no-audit", "--no-fund", "--ignore-scripts", "--cpu", "arm64"];
    await step("install the package", "npm", ["install", ...where, main, "zod"]);
    for (const file of programs) cpSync(file, join(work, basename(file)));
    const libraries = await sysroot(target);
    for (const major of nodes) {
      const node = join(await nodeOf(major, "arm64"), "bin", "node");
      const addresses = ["mem://a", "tcp://127.0.0.1:0", `shm://emulated-${process.pid}`];
      const program = join(work, "first-answers.mjs");
      const { status, output } = await run([
        "qemu-aarch64-static",
        "-L",
        libraries,
        node,
        program,
        ...addresses,
      ]);
      const answers = output.match(/: Hello, |: 16777216 bytes there and back/g)?.length ?? 0;
      const isWhole = status === 0 && answers === 2 * addresses.length;
      console.log(
        `${isWhole ? "ok     " : "FAILED "} arm64, Node ${major}: calls and transfers over mem, tcp and shm`,
      );
      if (isWhole) passed += 1;
      else problems.push(`arm64, Node ${major}: ended with ${status}, ${answers} answers:\n${output}`);
    }
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
  console.log(`\nNot shown: ${cannotShow}.`);
  return { passed, failed: problems.length, problems };
}
