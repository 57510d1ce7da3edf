import { basename } from "node:path";

/**
 * The commands that publish the packages that were made and tested, the one that others need first. The tag keeps the headings of the notes, which git takes
 * for comments by default.
 *
 * @param {{ version: string, files: readonly string[], notesFile: string, commit: string }} release
 * @returns {string}
 */
export function howToPublish({ version, files, notesFile, commit }) {
  const publish = files.map((file) => `npm publish ./dist-packages/${basename(file)} --access public`);
  return `To publish, after \`npm test -- all\` has passed on this commit:

    git tag -a v${version} ${commit} --cleanup=whitespace -F ${notesFile} && git push origin v${version}
    ${publish.join("\n    ")}
`;
}
