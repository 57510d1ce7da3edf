// `npm run docs [-- --look]`: makes the site of the documentation in build/site, and checks its links. `--look` also
// opens it in a browser without a screen. What it needs of npm lies in site/, so that `npm run setup` stays small.
import { endChildrenOnSignal, live } from "./setup/command.mjs";
import { reportFailure } from "./setup/set-up.mjs";
import { installSitePackages } from "./setup/site-packages.mjs";

endChildrenOnSignal();
const programs = ["site/build.mjs", ...(process.argv.includes("--look") ? ["site/look.mjs"] : [])];
try {
  await installSitePackages();
} catch (error) {
  reportFailure(error);
  process.exit(1);
}
for (const program of programs) {
  const ending = await live(process.execPath, [program]);
  if (ending !== "0") process.exit(1);
}
process.exit(0);
