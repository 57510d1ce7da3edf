/**
 * The section of a version in CHANGELOG.md, without its heading.
 *
 * @param {string} changelog
 * @param {string} version
 * @returns {string | undefined} undefined where there is none, or an empty one
 */
export function notesOf(changelog, version) {
  const sections = changelog.split(/^## /m).slice(1);
  const section = sections.find((text) => text.split(/\s/, 1)[0] === version);
  return section?.slice(section.indexOf("\n")).trim() || undefined;
}
