// `npm run example -- NAME [ARGUMENT…]`: sets up what examples need, then becomes the example with this name: a file of
// examples/, such as `01-hello` or `recipes/metrics`, or a folder with a main.ts, such as `group`.
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { root } from "./setup/command.mjs";
import { runExample } from "./setup/run-example.mjs";

const folder = join(root, "examples");
const [name = ""] = process.argv.splice(2, 1);
const file = [name, `${name}/main`].find((each) => each !== "" && existsSync(join(folder, `${each}.ts`)));
if (file === undefined) {
  console.error(`There is no example "${name}"; there are ${names().join(", ")}`);
  process.exit(1);
}
await runExample(file);

/** Files of the folder and of recipes/, and folders that are one program. */
function names() {
  const files = readdirSync(folder, { recursive: true, encoding: "utf8" });
  return files
    .filter((each) => /^[^/]*\.ts$|^recipes\/[^/]*\.ts$|\/main\.ts$/.test(each))
    .map((each) => each.replace(/(\/main)?\.ts$/, ""))
    .sort();
}
