import { basename } from "node:path";

/**
 * The commands that publish a package that was made and tested. The tag keeps the headings of the notes, which git takes
 * for comments by default.
 *
 * @param {{ version: string, file: string, notesFile: string, commit: string }} release
 * @returns {string}
 */
export function howToPublish({ version, file, notesFile, commit }) {
  return `To publish it, after \`npm run test:all\` has passed on this commit:

    git tag -a v${version} ${commit} --cleanup=whitespace -F ${notesFile} && git push origin v${version}
    npm publish ./dist-packages/${basename(file)} --access public
`;
}
