import { readdirSync } from "node:fs";
import { join } from "node:path";
import { ask, live, onPath, root } from "../setup/command.mjs";
import { installSitePackages } from "../setup/site-packages.mjs";
import { rootPrefix } from "../setup/system-packages.mjs";

/** @typedef {import("./outcome.mjs").Outcome} Outcome */

/** Makes the site of the documentation and looks at it in a browser, which is installed where that is possible. */
export async function runSite() {
  await installSitePackages();
  const built = await live(process.execPath, ["site/build.mjs"]);
  if (built !== "0") return failed("the site cannot be built, or a link leads nowhere");
  const pages = readdirSync(join(root, "build/site"), { recursive: true, encoding: "utf8" }).filter((file) =>
    file.endsWith(".html"),
  );
  await installBrowser();
  const looked = await live(process.execPath, ["site/look.mjs"]);
  if (looked === "0") return { passed: 2, failed: 0, problems: [] };
  if (looked !== "3") return failed("the site does not look as it should");
  const problem = `NO LOOK AT THE SITE: no browser; ${pages.length} pages are built, and their links are checked`;
  return { passed: 1, failed: 0, problems: [problem] };
}

/** @param {string} problem @returns {Outcome} */
function failed(problem) {
  return { passed: 0, failed: 1, problems: [problem] };
}

async function installBrowser() {
  if (["chromium-headless-shell", "chromium", "google-chrome"].some((name) => onPath(name) !== undefined))
    return;
  const prefix = await rootPrefix();
  if (prefix === undefined || onPath("apt-get") === undefined) return;
  const [command = "", ...args] = [...prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get"];
  const packages = ["chromium-headless-shell", "fonts-dejavu-core"];
  await ask(command, [...args, "update", "-q"]);
  await ask(command, [...args, "install", "-y", "-q", "--no-install-recommends", ...packages]);
}
