// `npm run package [-- --target NAME …]`: builds the npm package from its sources into dist-packages/, with the addon
// and libfabric for each target. Keeps what takes long in ~/.cache/cinnabar-package.
import { join } from "node:path";
import { parseArgs } from "node:util";
import { makePackage } from "./package/make.mjs";
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
  const { file, text } = await makePackage(chosen, join(root, "dist-packages"));
  console.log(`\n${file}\n${text}`);
} catch (error) {
  reportFailure(error);
  process.exitCode = 1;
}
