/**
 * Files that name the version of the package, beside CHANGELOG.md. Each is JSON as npm writes it, or a page that names
 * the archive.
 */
export const versionedFiles = [
  "package.json",
  "packages/cli/package.json",
  "bench/package.json",
  "package-lock.json",
  "docs/guide/install.md",
  "docs/guide/first-service.md",
];

const archive = /(?<=\bcinnabar-)\d+\.\d+\.\d+[\w.-]*?(?=\.tgz\b)/g;

/**
 * The versions of the package that a file names.
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
  const { "": main, bench, "packages/cli": cli } = content.packages;
  return [[content, "version"], ...[main, bench, cli].flatMap(inManifest)];
}

/**
 * @param {any} manifest
 * @returns {[object: Record<string, string>, key: string][]}
 */
function inManifest(manifest) {
  const needed = manifest.peerDependencies ?? {};
  return [
    [manifest, "version"],
    ...("cinnabar" in needed ? [/** @type {[any, string]} */ ([needed, "cinnabar"])] : []),
  ];
}
