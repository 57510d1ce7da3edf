/**
 * The section of a version in CHANGELOG.md, without its heading.
 *
 * @param {string} changelog
 * @param {string} version
 * @returns {string | undefined} undefined without such a section, or with an empty one
 */
export function notesOf(changelog, version) {
  const section = sectionOf(changelog, version);
  return section?.slice(section.indexOf("\n")).trim() || undefined;
}

/**
 * The date in the heading of a version's section, "2027-01-02"; undefined without a date.
 *
 * @param {string} changelog
 * @param {string} version
 */
export function dateOf(changelog, version) {
  return /^\S+ \((\d{4}-\d{2}-\d{2})\)$/m.exec(sectionOf(changelog, version)?.split("\n", 1)[0] ?? "")?.[1];
}

/**
 * The changelog with a version and a date in the heading of its first section, which says "unreleased" until then.
 *
 * @param {string} changelog
 * @param {string} version
 * @param {string} date
 * @returns {string | undefined} undefined where the first section is of a release that has been made
 */
export function dated(changelog, version, date) {
  const [heading] = /^## .*$/m.exec(changelog) ?? [];
  if (heading === undefined || !/\(unreleased\)$|^## Unreleased$/.test(heading)) return undefined;
  return changelog.replace(heading, `## ${version} (${date})`);
}

/**
 * @param {string} changelog
 * @param {string} version
 */
function sectionOf(changelog, version) {
  const sections = changelog.split(/^## /m).slice(1);
  return sections.find((text) => text.split(/\s/, 1)[0] === version);
}
