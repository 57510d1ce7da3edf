/** The page of the guide whose tables list every error message. */
export const troubleshooting = "docs/guide/troubleshooting.md";

/** Where the site has a section of it. `anchor` is the section's, as links name it. */
export function sectionTarget(anchor) {
  return troubleshooting.replace(/\.md$/, `/${anchor}.md`);
}

/**
 * The page as the site shows it: a page for each section, and a heading for each message. The search of the site finds
 * headings, and leads to them; in a long table the reader would search once more.
 *
 * @returns {{ target: string, text: string }[]} the list of the sections, and each section
 */
export function troubleshootingPages(text) {
  const [introduction = "", ...sections] = text.split(/^## /m);
  const pages = sections.map(sectionPage);
  const list = pages.map(
    ({ title, anchor, count }) => `- [${title}](troubleshooting.md#${anchor}): ${count} messages`,
  );
  return [
    { target: troubleshooting, text: `${introduction}## Sections\n\n${list.join("\n")}\n` },
    ...pages.map(({ anchor, page }) => ({ target: sectionTarget(anchor), text: page })),
  ];
}

function sectionPage(section) {
  const [title = "", ...lines] = section.split("\n");
  const rows = lines
    .filter((line) => line.startsWith("| ") && !line.startsWith("| Message |"))
    .map((line) => line.slice(2, -2).split(" | "));
  const words = lines.filter((line) => !line.startsWith("|")).join("\n");
  const messages = rows.map(
    ([message, cause, remedy], index) =>
      `## ${message} {#message-${index + 1}}\n\n${cause}\n\n**Remedy.** ${remedy}\n`,
  );
  return {
    title,
    anchor: anchorOf(title),
    count: rows.length,
    page: `---\npageClass: messages\n---\n\n# ${title}\n\n${words.trim()}\n\n${messages.join("\n")}`.replaceAll(
      "](#",
      "](troubleshooting.md#",
    ),
  };
}

/** The anchor that GitHub gives to a heading. */
function anchorOf(heading) {
  return heading
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N} _-]/gu, "")
    .replaceAll(" ", "-");
}
