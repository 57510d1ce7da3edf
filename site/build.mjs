// `npm run docs`: makes the site of the documentation in build/site. Ends with an error where a link leads nowhere.
import { rmSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "vitepress";
import { stagePages } from "./pages.mjs";
import { output, source } from "./paths.mjs";
import { makeReference } from "./reference.mjs";

rmSync(source, { recursive: true, force: true });
rmSync(output, { recursive: true, force: true });
stagePages();
await makeReference();
await build(fileURLToPath(new URL("./", import.meta.url)));
const { checkLinks } = await import("./links.mjs");
const { pages, links, broken } = checkLinks();
for (const line of broken) console.error(line);
if (broken.length > 0) {
  console.error(`\n${broken.length} links lead nowhere`);
  process.exit(1);
}
console.log(`${pages} pages and ${links} links inside the site, in ${output}`);
