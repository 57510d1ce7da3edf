// Parses the blocks of scripts.json and links them with what they import. Prints how many there are, and each fault.
import { readFileSync } from "node:fs";
import { SourceTextModule, SyntheticModule } from "node:vm";

/** @type {{ page: string, name: string, text: string }[]} */
const scripts = JSON.parse(readFileSync(new URL("scripts.json", import.meta.url), "utf8"));

/** vitest can be imported in its own processes alone. */
const vitestNames = [
  "afterAll",
  "afterEach",
  "beforeAll",
  "beforeEach",
  "describe",
  "expect",
  "it",
  "test",
  "vi",
];

for (const { page, name, text } of scripts) {
  try {
    await new SourceTextModule(text).link((specifier) => dependency(page, specifier));
  } catch (error) {
    console.error(`${page}, ${name}: ${error}`);
  }
}
console.log(`${scripts.length} blocks`);

/**
 * A module that another names: of the same page, or installed.
 *
 * @param {string} page
 * @param {string} specifier
 */
async function dependency(page, specifier) {
  if (!specifier.startsWith("./")) return namespaceOf(specifier);
  const own = scripts.find((one) => one.page === page && one.name === specifier.slice(2));
  if (own === undefined) throw new Error(`the page has no ${specifier}`);
  return new SourceTextModule(own.text);
}

/** @param {string} specifier */
async function namespaceOf(specifier) {
  const names = specifier === "vitest" ? vitestNames : Object.keys(await import(specifier));
  return new SyntheticModule(names, () => {});
}
