// `npm run release`: builds the packages of a clean checkout, tests them in bare roots, on arm64, on RDMA devices, with
// an addon that is built, and under the tools of their users. Then it writes the notes from CHANGELOG.md into dist-packages/
// and prints the commands that publish. It publishes nothing. `-- --rehearse` takes a version without a date;
// `-- --prepare VERSION` sets version and date.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { makePackages } from "./package/make.mjs";
import { targets } from "./package/targets.mjs";
import { faultsOfCheckout } from "./release/checks.mjs";
import { notesOf } from "./release/notes.mjs";
import { prepareRelease } from "./release/prepare.mjs";
import { howToPublish } from "./release/publish.mjs";
import { versionedFiles } from "./release/versions.mjs";
import { ask, endChildrenOnSignal, root, SetupError } from "./setup/command.mjs";
import { reportFailure, setUp } from "./setup/set-up.mjs";
import { runConsumers } from "./test/consumers.mjs";
import { packages } from "./test-package/archives.mjs";
import { testOnArm64 } from "./test-package/arm64.mjs";
import { testFromSources } from "./test-package/from-sources.mjs";
import { testInRoots } from "./test-package/in-roots.mjs";
import { testOnDevices } from "./test-package/verbs.mjs";

endChildrenOnSignal();
try {
  const { values } = parseArgs({
    options: { rehearse: { type: "boolean", default: false }, prepare: { type: "string" } },
  });
  if (values.prepare === undefined) await release(values.rehearse);
  else prepare(values.prepare);
} catch (error) {
  reportFailure(error);
  process.exitCode = 1;
}

/** @param {string} version */
function prepare(version) {
  const files = prepareRelease(root, version, new Date().toISOString().slice(0, 10));
  console.log(`Changed ${files.join(", ")}.\nLook at them (git diff), commit them, then: npm run release`);
}

/** @param {boolean} isRehearsal */
async function release(isRehearsal) {
  const read = (/** @type {string} */ file) => readFileSync(join(root, file), "utf8");
  const { version, repository } = JSON.parse(read("package.json"));
  const changelog = read("CHANGELOG.md");
  const faults = faultsOfCheckout(
    {
      version,
      changelog,
      versioned: Object.fromEntries(versionedFiles.map((file) => [file, read(file)])),
      changes: await git("status", "--porcelain"),
      tags: (await git("tag", "--list")).split("\n"),
    },
    { isRehearsal },
  );
  if (faults.length > 0) throw new SetupError(faults.join("\n"));
  await setUp("test");
  const { text, ...archives } = await makePackages(targets, packages);
  for (const test of [testInRoots, testOnArm64, testOnDevices, testFromSources, testWithTools]) {
    const { passed, failed, problems, skipped } = await test(archives);
    for (const problem of problems) console.log(`FAILED  ${problem}`);
    console.log(skipped ?? `${passed} passed, ${failed} failed`);
    if (failed > 0 || (passed === 0 && skipped === undefined))
      throw new SetupError("The packages do not pass their tests.");
  }
  const notesFile = join(packages, `notes-${version}.md`);
  writeFileSync(notesFile, `${notesOf(changelog, version)}\n`);
  console.log(`\n${text}\n\n${notesFile}\n`);
  if (isRehearsal) console.log("A rehearsal: npm run release says how to publish.");
  else {
    const files = [archives.main, ...archives.others];
    console.log(howToPublish({ version, files, notesFile, commit: await git("rev-parse", "HEAD") }));
  }
  if (repository === undefined)
    console.log(
      'package.json has no "repository": npm shows no source and takes no provenance until it has one.',
    );
}

/** @param {import("./package/make.mjs").Archives} archives */
function testWithTools(archives) {
  return runConsumers({ archives });
}

/** @param {readonly string[]} args */
async function git(...args) {
  const { ok, output } = await ask("git", args);
  if (!ok) throw new SetupError(`git ${args.join(" ")} failed: ${output.trim()}`);
  return output.trim();
}
