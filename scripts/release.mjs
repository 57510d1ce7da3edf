// `npm run release`: builds and tests the package of a clean checkout, writes the notes from CHANGELOG.md into
// dist-packages/, and prints the commands that publish. It publishes nothing.
import { readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { makePackage } from "./package/make.mjs";
import { targets } from "./package/targets.mjs";
import { notesOf } from "./release/notes.mjs";
import { ask, endChildrenOnSignal, root, SetupError } from "./setup/command.mjs";
import { reportFailure, setUp } from "./setup/set-up.mjs";
import { testOnArm64 } from "./test-package/arm64.mjs";
import { testInRoots } from "./test-package/in-roots.mjs";
import { packages } from "./test-package/tarball.mjs";

endChildrenOnSignal();
try {
  const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const notes = notesOf(readFileSync(join(root, "CHANGELOG.md"), "utf8"), version);
  if (notes === undefined)
    throw new SetupError(
      `CHANGELOG.md says nothing of ${version}.`,
      `Write a section "## ${version} (DATE)".`,
    );
  const { output: changes } = await ask("git", ["status", "--porcelain"]);
  if (changes !== "")
    throw new SetupError(
      "The checkout has changes that are not committed.",
      "Commit them, or put them aside.",
    );
  await setUp("demo");
  const { file, text } = await makePackage(targets, packages);
  for (const test of [testInRoots, testOnArm64]) {
    const { passed, failed, problems } = await test(file);
    for (const problem of problems) console.log(`FAILED  ${problem}`);
    console.log(`${passed} passed, ${failed} failed`);
    if (failed > 0 || passed === 0) throw new SetupError("The package does not pass its tests.");
  }
  const notesFile = join(packages, `notes-${version}.md`);
  writeFileSync(notesFile, `${notes}\n`);
  const { output: commit } = await ask("git", ["rev-parse", "HEAD"]);
  console.log(`
${file}
${text}
${notesFile}

To publish it, after \`npm run test:all\` has passed on this commit:

    git tag -a v${version} ${commit.trim()} -F ${notesFile} && git push origin v${version}
    npm publish ./dist-packages/${basename(file)} --access public`);
} catch (error) {
  reportFailure(error);
  process.exitCode = 1;
}
