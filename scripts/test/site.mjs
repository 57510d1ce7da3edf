import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { live, onPath, root } from "../setup/command.mjs";
import { installSitePackages } from "../setup/site-packages.mjs";
import { aptGet, rootPrefix } from "../setup/system-packages.mjs";

/** @typedef {import("./outcome.mjs").Outcome} Outcome */

/**
 * Makes the site of the documentation and looks at it in a browser, which is installed where that is possible. The
 * example of a back end and the client for browsers are used in the same browser, directly and through nginx.
 *
 * @param {readonly string[]} [options] `--guide-images` makes the pictures of the guide anew
 */
export async function runSite(options = []) {
  await installSitePackages();
  const built = await live(process.execPath, ["site/build.mjs"]);
  if (built !== "0") return failed("the site cannot be built, or a link leads nowhere");
  const pages = readdirSync(join(root, "build/site"), { recursive: true, encoding: "utf8" }).filter((file) =>
    file.endsWith(".html"),
  );
  await installBrowser();
  const looked = await live(process.execPath, ["site/look.mjs"]);
  if (looked === "3") {
    const problem = `NO LOOK AT THE SITE: no browser; ${pages.length} pages are built, and their links are checked`;
    return { passed: 1, failed: 0, problems: [problem] };
  }
  if (looked !== "0") return failed("the site does not look as it should");
  const used = await live(process.execPath, ["site/shop.mjs", ...options]);
  if (used !== "0") return failed("the example of a back end does not work in a browser");
  return { passed: 3, failed: 0, problems: [] };
}

/** @param {string} problem @returns {Outcome} */
function failed(problem) {
  return { passed: 0, failed: 1, problems: [problem] };
}

async function installBrowser() {
  const hasBrowser = ["chromium-headless-shell", "chromium", "google-chrome"].some(
    (name) => onPath(name) !== undefined,
  );
  if (hasBrowser && existsSync("/usr/sbin/nginx")) return;
  const prefix = await rootPrefix();
  if (prefix === undefined || onPath("apt-get") === undefined) return;
  const apt = aptGet(prefix);
  try {
    // A list that cannot be read hinders no installation from the others.
    await apt.update().catch(() => undefined);
    await apt.install(["chromium-headless-shell", "fonts-dejavu-core", "nginx-light"]);
  } catch {
    // The look at the site says that there is no browser.
  }
}
