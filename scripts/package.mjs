// `npm run package [-- --target NAME …]`: builds the npm package from its sources into dist-packages/, with the addon
// and libfabric for each target. Keeps what takes long in ~/.cache/cinnabar-package.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { assemble } from "./package/assemble.mjs";
import { targets } from "./package/targets.mjs";
import { installTools } from "./package/tools.mjs";
import { endChildrenOnSignal, root, SetupError, step } from "./setup/command.mjs";
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
  await installTools(chosen);
  const folder = await assemble(chosen);
  const destination = join(root, "dist-packages");
  mkdirSync(destination, { recursive: true });
  const packed = await step("pack", "npm", ["pack", folder, "--json", "--pack-destination", destination]);
  const [{ filename, size, unpackedSize, entryCount }] = JSON.parse(packed.slice(packed.indexOf("[\n")));
  const file = join(destination, filename);
  const sum = createHash("sha256").update(readFileSync(file)).digest("hex");
  console.log(`\n${file}`);
  console.log(`${size} bytes, ${unpackedSize} unpacked, ${entryCount} files, for ${names.join(", ")}`);
  console.log(`sha256 ${sum}`);
} catch (error) {
  reportFailure(error);
  process.exitCode = 1;
}
