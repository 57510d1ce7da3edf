// `npm run package [-- --target NAME …]`: builds the npm packages from their sources into dist-packages/: `cinnabar`,
// with the addon and libfabric for each target, and those of packages/ that are not private. Keeps what takes long in
// ~/.cache/cinnabar-package.
import { join } from "node:path";
import { parseArgs } from "node:util";
import { makePackages } from "./package/make.mjs";
import { targets } from "./package/targets.mjs";
import { endChildrenOnSignal, root, SetupError } from "./setup/command.mjs";
import { reportFailure, setUp } from "./setup/set-up.mjs";

endChildrenOnSignal();
try {
  const { values } = parseArgs({ options: { target: { type: "string", multiple: true } } });
  const names = values.target ?? targets.map(({ name }) => name);
  const chosen = targets.filter(({ name }) => names.includes(name));
  const unknown = names.filter((name) => !targets.some((target) => target.name === name));
  if (unknown.length > 0)
    throw new SetupError(
      `--target ${unknown.join(", ")}: there is no such target.`,
      `Known are ${targets.map(({ name }) => name).join(", ")}.`,
    );
  await setUp("demo");
  const { text } = await makePackages(chosen, join(root, "dist-packages"));
  console.log(`\n${text}`);
} catch (error) {
  reportFailure(error);
  process.exitCode = 1;
}
