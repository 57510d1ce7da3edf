import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root, SetupError } from "../setup/command.mjs";

/** Files of libfabric under another licence than its COPYING, each with its notice at its beginning. */
const withNotices = [
  "src/mem.c",
  "src/linux/rdpmc.c",
  "prov/util/src/util_mem_hooks.c",
  "src/fasthash.c",
  "include/uthash.h",
];

/** Packages with sources that the addon contains. */
const ofAddon = { "node-addon-api": "LICENSE.md", "node-api-headers": "LICENSE" };

const overview = `Licences of what is in this package

dist/, native/ (but include/) and the addons cinnabar.node
  Apache-2.0, see LICENSE in the package's folder. The addons have parts of node-addon-api (MIT), node-api-headers
  (MIT) and of the C++ library of GCC (GPL-3.0 with the GCC Runtime Library Exception 3.1, which lets the result of a
  compilation be under any terms). The texts are beside this file.

native/linux-*/libfabric.so.1 and libverbs-fi.so, native/include/rdma/
  libfabric VERSION, at choice under BSD-2-Clause or GPL-2.0; Cinnabar takes BSD-2-Clause. See libfabric/COPYING, and
  libfabric/notices.txt for the parts of it under other terms (BSD-3-Clause, BSD, MIT).
`;

/**
 * Writes the licences of everything in the package into a folder.
 *
 * @param {string} folder
 * @param {{ libfabric: string, version: string }} sources the folder of libfabric's sources
 */
export function writeLicenses(folder, { libfabric, version }) {
  mkdirSync(join(folder, "libfabric"), { recursive: true });
  writeFileSync(join(folder, "README.txt"), overview.replace("VERSION", version));
  for (const [name, file] of Object.entries(ofAddon))
    copyFileSync(join(root, "node_modules", name, file), join(folder, `${name}.txt`));
  copyFileSync(join(libfabric, "COPYING"), join(folder, "libfabric", "COPYING"));
  const notices = withNotices.map((file) => {
    const [notice] = /^\s*\/\*[\s\S]*?\*\//.exec(readFileSync(join(libfabric, file), "utf8")) ?? [];
    if (!notice?.includes("Copyright"))
      throw new SetupError(`${file} of libfabric does not begin with a notice.`);
    return `${file}\n\n${notice.trim()}\n`;
  });
  writeFileSync(join(folder, "libfabric", "notices.txt"), notices.join("\n"));
}
