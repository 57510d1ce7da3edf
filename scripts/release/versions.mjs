import { existsSync, readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../..", import.meta.url));

/** All of packages/ have one version, with `cinnabar`. */
const packages = readdirSync(`${root}packages`)
  .map((name) => `packages/${name}`)
  .filter((folder) => existsSync(`${root}${folder}/package.json`));

/**
 * Files that name the version of the packages, beside CHANGELOG.md. Each is JSON as npm writes it, or a page that names
 * the archive.
 */
export const versionedFiles = [
  "package.json",
  ...packages.map((folder) => `${folder}/package.json`),
  "bench/package.json",
  "package-lock.json",
  "docs/guide/install.md",
  "docs/guide/first-service.md",
];

const archive = /(?<=\bcinnabar-(?:[a-z]+-)?)\d+\.\d+\.\d+[\w.-]*?(?=\.tgz\b)/g;

/**
 * The versions of packages that a file names.
 *
 * @param {string} file
 * @param {string} text
 * @returns {string[]}
 */
export function versionsIn(file, text) {
  if (!file.endsWith(".json")) return [...text.matchAll(archive)].map(([version]) => version);
  return objectsIn(file, JSON.parse(text)).map(([object, key]) => object[key] ?? "none");
}

/**
 * The text of a file with another version.
 *
 * @param {string} file
 * @param {string} text
 * @param {string} version
 */
export function withVersion(file, text, version) {
  if (!file.endsWith(".json")) return text.replaceAll(archive, version);
  const content = JSON.parse(text);
  for (const [object, key] of objectsIn(file, content)) object[key] = version;
  return `${JSON.stringify(content, undefined, 2)}\n`;
}

/**
 * Where in a file's content the version stands.
 *
 * @param {string} file
 * @param {any} content
 * @returns {[object: Record<string, string>, key: string][]}
 */
function objectsIn(file, content) {
  if (file !== "package-lock.json") return inManifest(content);
  const own = ["", "bench", ...packages].map((folder) => content.packages[folder]);
  return [[content, "version"], ...own.flatMap(inManifest)];
}

/**
 * @param {any} manifest
 * @returns {[object: Record<string, string>, key: string][]}
 */
function inManifest(manifest) {
  const needed = manifest.peerDependencies ?? {};
  return [
    [manifest, "version"],
    ...Object.keys(needed)
      .filter((name) => /^cinnabar(-|$)/.test(name))
      .map((name) => /** @type {[any, string]} */ ([needed, name])),
  ];
}
