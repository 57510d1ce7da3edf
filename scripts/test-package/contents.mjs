import { statSync } from "node:fs";
import { ask } from "../setup/command.mjs";

/** What every package must have. */
const needed = [
  ...["package.json", "README.md", "LICENSE", "CHANGELOG.md", "dist/index.js", "dist/index.d.ts"],
  ...["SECURITY.md", "docs/guide/index.md", "examples/01-hello.ts"],
  ...[
    "dist/cli/bin/cinnabar.js",
    "licenses/README.txt",
    "licenses/libfabric/COPYING",
    "licenses/libfabric/notices.txt",
  ],
  ...["licenses/node-addon-api.txt", "licenses/node-api-headers.txt", "native/CMakeLists.txt"],
  ...["native/include/node-api/napi.h", "native/include/rdma/fabric.h"],
];

/** Files of a target. */
const binaries = ["cinnabar.node", "libfabric.so.1", "libverbs-fi.so"];

/**
 * What no package may have: sources of TypeScript but for examples, tests, what a build leaves, what belongs to the
 * checkout.
 */
const unwanted =
  /\.test[.-]|^(?!examples\/).*(?<!\.d)\.ts$|^examples\/demo\/|\.(o|a|log|tgz)$|^native\/(build|test)|^(src|test|scripts|node_modules)\//;

/** What every other package must have. */
const neededByOthers = ["package.json", "README.md", "LICENSE", "dist/index.js", "dist/index.d.ts"];

/** A half more than it takes with binaries for two platforms; docs/guide/install.md names the size. */
const maxBytes = 6_000_000;

/**
 * What is wrong with the files of a package.
 *
 * @param {readonly string[]} files without the folder `package/`
 * @param {readonly string[]} [withoutCode] those of `dist/` that need no source map
 * @returns {string[]} a sentence for each fault
 */
export function faultsOfContents(files, withoutCode = []) {
  const folders = [...new Set(files.map((file) => /^native\/linux-[^/]+/.exec(file)?.[0] ?? ""))].filter(
    Boolean,
  );
  const wanted = [...needed, ...folders.flatMap((folder) => binaries.map((name) => `${folder}/${name}`))];
  return [
    ...(folders.length === 0 ? ["it has no binaries"] : []),
    ...wanted.filter((file) => !files.includes(file)).map((file) => `it has no ${file}`),
    ...faultsOfAny(files, withoutCode),
  ];
}

/**
 * What is wrong with the files of a package of packages/.
 *
 * @param {readonly string[]} files without the folder `package/`
 * @returns {string[]} a sentence for each fault
 */
export function faultsOfOther(files) {
  return [
    ...neededByOthers.filter((file) => !files.includes(file)).map((file) => `it has no ${file}`),
    ...faultsOfAny(files),
  ];
}

/**
 * Whether a file of `dist/` has more than imports and exports of other files. The bundler writes no map for those.
 *
 * @param {string} text
 */
export function hasCode(text) {
  return !/^(\s*(import|export)\s*([\w$*{},\s]+from\s*)?"[^"]+";|\s*export\s*\{[^}]*\};)*\s*$/.test(text);
}

/**
 * @param {readonly string[]} files
 * @param {readonly string[]} [withoutCode]
 * @returns {string[]}
 */
function faultsOfAny(files, withoutCode = []) {
  const mapped = new Set([...files, ...withoutCode.map((file) => `${file}.map`)]);
  // The programs of bin/ are written as they are.
  const compiled = files.filter((file) => /^dist\/(?!.*\bbin\/).*\.js$/.test(file));
  return [
    ...files.filter((file) => unwanted.test(file)).map((file) => `it has ${file}`),
    ...compiled.filter((file) => !mapped.has(`${file}.map`)).map((file) => `${file} has no source map`),
  ];
}

/**
 * @param {string} archive
 * @returns {Promise<string>} why its contents are wrong; "" if they are not
 */
export async function contentsFaultOfOther(archive) {
  return faultsOfOther(await filesOf(archive)).join("; ");
}

/**
 * @param {string} archive of `cinnabar`
 * @returns {Promise<string>} why its contents are wrong; "" if they are not
 */
export async function contentsFault(archive) {
  const files = await filesOf(archive);
  const faults = faultsOfContents(files, await withoutCodeOf(archive, files));
  const { size } = statSync(archive);
  if (size > maxBytes) faults.push(`it has ${size} bytes, more than ${maxBytes}`);
  return faults.join("; ");
}

/**
 * @param {string} archive
 * @param {readonly string[]} files
 * @returns {Promise<string[]>}
 */
async function withoutCodeOf(archive, files) {
  const unmapped = files.filter((file) => /^dist\/.*\.js$/.test(file) && !files.includes(`${file}.map`));
  const texts = unmapped.map((file) => ask("tar", ["-xzOf", archive, `package/${file}`]));
  const read = await Promise.all(texts);
  return unmapped.filter((_, index) => !hasCode(read[index]?.output ?? ""));
}

/**
 * @param {string} archive
 * @returns {Promise<string[]>} empty if tar cannot read it
 */
async function filesOf(archive) {
  const { ok, output } = await ask("tar", ["-tzf", archive]);
  return ok
    ? output
        .trim()
        .split("\n")
        .map((file) => file.replace(/^package\//, ""))
    : [];
}
