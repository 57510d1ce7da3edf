import { posix } from "node:path";
import { partsUnderSanitizers } from "./sanitizers.mjs";

/**
 * What a change can touch, by these rules (CONTRIBUTING.md has them for readers):
 *
 * - A test runs where it or what it imports has changed.
 * - A test that starts programs or threads gets them from build/ and dist/, which no import shows. It runs where a
 *   file has changed that such programs are made of: examples, benchmarks, the command line, the programs of tests, and
 *   what these import, which is all of src/. Which kinds a test starts is read from the names of their folders in it
 *   and in its helpers.
 * - Tests that read the tree, those of test/structure and test/docs, run always. A file that is no code touches the
 *   tests of its folder of test/.
 * - native/ touches the C++ tests, the tests that drive the addon and those that start programs.
 * - Configuration and set-up touch everything.
 */

/** @typedef {ReadonlyMap<string, string>} Sources path and text of every TypeScript and JavaScript file of the tree */

const configuration =
  /^(package(-lock)?\.json|tsconfig[^/]*\.json|vitest\.config\.ts|\.ci\/|scripts\/(setup\/|test\.mjs|test\/(changed|stages|stage|run-stages|results|vitest)[^/]*$)|packages\/[^/]+\/(package|tsconfig)\.json|bench\/package\.json)/;
const readsTheTree = /^test\/(structure|docs)\//;
/** Kinds of programs, by their files, and by what names them in the tests that start some. */
const programs = [
  { files: /^bench\//, named: /\bbench\// },
  { files: /^examples\//, named: /\bexamples?\b|\bdemo\b/ },
  { files: /^packages\//, named: /\bpackages\/|\bcli\b|\bgroup-member\b/ },
  { files: /^test\/.*\/programs\//, named: /\bprograms\// },
];
const startsPrograms = /from "node:(child_process|worker_threads)"/;
const isTest = /\.test\.ts$/;
const isNoPartOfPrograms = /\.test(-\w+)*\.ts$/;

/**
 * @param {readonly string[]} changed paths of files
 * @param {Sources} sources
 * @param {readonly string[]} stages the names of those that would run without a choice
 * @returns {{ tests: Map<string, readonly string[]>, notRun: Map<string, string> }} `tests`: by the stage, where it
 * does not run all of them; `notRun`: why not, by the stage
 */
export function plan(changed, sources, stages) {
  /** @type {Map<string, string>} */
  const notRun = new Map();
  /** @type {Map<string, readonly string[]>} */
  const tests = new Map();
  if (changed.some((file) => configuration.test(file))) return { tests, notRun };

  /** @param {RegExp} pattern */
  const any = (pattern) => changed.some((file) => pattern.test(file));
  /** @param {string} stage @param {boolean} isTouched @param {string} why */
  const unless = (stage, isTouched, why) => {
    if (!isTouched) notRun.set(stage, why);
  };
  const touched = [...touchedTests(changed, sources)];
  const groups = {
    processes: touched.filter((test) => test.startsWith("test/processes/")),
    vitest: touched.filter((test) => !test.startsWith("test/processes/")),
  };
  for (const [stage, files] of Object.entries(groups)) {
    unless(stage, files.length > 0, "no test of it imports or starts what has changed");
    if (files.length > 0) tests.set(stage, files);
  }
  unless("biome", any(/\.(ts|mjs|js|json)$/), "no TypeScript, JavaScript or JSON has changed");
  unless("clang-format", any(/^(native\/.*\.(cc|h)|\.clang-format)$/), "no C++ has changed");
  for (const types of ["types-6", "types-7"])
    unless(types, any(/\.(ts|mjs|js)$/), "no TypeScript or JavaScript has changed");
  unless("native", any(/^native\/|^scripts\/test\/native/), "nothing in native/ has changed");
  unless(
    "rdma-smoke",
    any(/^native\/|^test\/(rdma|matrix)\/|^scripts\/test\/rdma/) || any(/^src\/(?!.*\.test\.ts$)/),
    "nothing in native/, src/ or the guest has changed",
  );
  unless(
    "sanitizers-smoke",
    any(/^native\/|^src\/(fabric|libfabric|memory)\/|^scripts\/test\/(sanitizer|leak)/),
    "nothing in native/ or next to it in src/ has changed",
  );
  for (const name of notRun.keys()) if (!stages.includes(name)) notRun.delete(name);
  return { tests, notRun };
}

/**
 * @param {readonly string[]} changed
 * @param {Sources} sources
 * @returns {Set<string>} test files
 */
export function touchedTests(changed, sources) {
  const files = [...sources.keys()];
  const allTests = files.filter((file) => isTest.test(file));
  const imports = new Map(files.map((file) => [file, importsOf(file, sources)]));
  const touched = new Set(allTests.filter((test) => readsTheTree.test(test)));
  const changedCode = new Set(changed);

  for (const test of allTests) {
    if (reach([test], imports).some((file) => changedCode.has(file))) touched.add(test);
  }
  const native = changed.some((file) => file.startsWith("native/"));
  const kinds = programs.filter(({ files: ofKind }) => {
    const roots = files.filter((file) => ofKind.test(file) && !isNoPartOfPrograms.test(file));
    return native || reach(roots, imports).some((file) => changedCode.has(file));
  });
  for (const test of kinds.length === 0 ? [] : allTests) {
    // src/ imports what is for threads; a test starts some only by itself or by its helpers.
    const own = reach([test], imports, (file) => !file.startsWith("src/"));
    const text = own.map((file) => `${file}\n${sources.get(file)}`).join("\n");
    if (!startsPrograms.test(text)) continue;
    // One that names no kind may start any.
    const isNamed = (/** @type {(typeof programs)[number]} */ kind) => kind.named.test(text);
    if (kinds.some(isNamed) || !programs.some(isNamed)) touched.add(test);
  }
  if (native) {
    const driving = partsUnderSanitizers.flatMap(({ filters }) => filters);
    for (const test of allTests) if (driving.some((filter) => test.includes(filter))) touched.add(test);
  }
  // The types of the public face are judged by compiling files that no test imports.
  const noTestOfSources = changed.some((file) => file.startsWith("src/") && !isNoPartOfPrograms.test(file));
  for (const test of allTests) {
    if (test.startsWith("test/types/") && noTestOfSources) touched.add(test);
    const isBeside = (/** @type {string} */ file) =>
      file.startsWith("test/") && folderOfTests(file) === folderOfTests(test);
    if (changed.some((file) => isBeside(file) && (!sources.has(file) || file.endsWith(".test-d.ts"))))
      touched.add(test);
  }
  return touched;
}

/** @param {string} path "test/golden" of "test/golden/messages.json" */
function folderOfTests(path) {
  return path.split("/").slice(0, 2).join("/");
}

/**
 * The files and all that they import.
 *
 * @param {readonly string[]} from
 * @param {ReadonlyMap<string, readonly string[]>} imports
 * @param {(file: string) => boolean} [enters]
 * @returns {string[]}
 */
function reach(from, imports, enters = () => true) {
  const found = new Set(from);
  for (const file of found) for (const next of imports.get(file) ?? []) if (enters(next)) found.add(next);
  return [...found];
}

/** The source of each entry of the package. @type {Readonly<Record<string, string>>} */
const sourceOfEntry = {
  cinnabar: "src/index.ts",
  "cinnabar/standard": "src/standard.ts",
  "cinnabar/contract": "src/contract.ts",
  "cinnabar/contract/standard": "src/contract/standard.ts",
  "cinnabar/inspect": "src/inspect.ts",
  "cinnabar/lanes": "src/lanes/index.ts",
};

/** The path in an import, an export, an `import()` or a `new URL(…, import.meta.url)`. */
const specifiers = /(?:\bfrom\s*|\bimport\s*\(?\s*|\bnew URL\(\s*)"([^"\n]+)"/g;

/**
 * @param {string} file
 * @param {Sources} sources
 * @returns {string[]} files of the tree
 */
function importsOf(file, sources) {
  /** @type {string[]} */
  const found = [];
  for (const [, specifier = ""] of (sources.get(file) ?? "").matchAll(specifiers)) {
    const source = sourceOfEntry[specifier];
    if (source !== undefined) found.push(source);
    else if (specifier.startsWith(".")) found.push(posix.join(posix.dirname(file), specifier));
  }
  return found.filter((path) => sources.has(path));
}
