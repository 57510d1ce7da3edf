import { fileURLToPath } from "node:url";

/** The root of the checkout. */
export const root = fileURLToPath(new URL("../", import.meta.url));
/** What the site is made from: the repository's pages, and generated ones. Beside the packages that they need. */
export const source = `${root}site/.pages/`;
/** The site. */
export const output = `${root}build/site/`;
