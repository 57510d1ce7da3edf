import { SetupError, step } from "../setup/command.mjs";
import { baseLibraries, newestGlibc } from "./targets.mjs";

/**
 * What would keep a binary from running on the systems that the package promises, from the words of objdump.
 *
 * @param {{ symbols: string, headers: string }} said by `objdump -T` and `objdump -p`
 * @param {readonly string[]} libraries that it may link
 * @returns {string[]} a sentence for each fault
 */
export function faultsOf({ symbols, headers }, libraries) {
  const faults = [];
  const [major = 0, minor = 0] = newestGlibc;
  const versions = new Set([...symbols.matchAll(/\bGLIBC_(\d+)\.(\d+)/g)].map(([version]) => version));
  if (versions.size === 0) faults.push("it needs no symbol of glibc: objdump has read nothing");
  for (const version of versions) {
    const [, of = 0, at = 0] = /_(\d+)\.(\d+)/.exec(version)?.map(Number) ?? [];
    if (of > major || (of === major && at > minor))
      faults.push(`it needs ${version}, above ${major}.${minor}`);
  }
  for (const library of new Set(
    [...symbols.matchAll(/\b(?:GLIBCXX|CXXABI)_[\d.]+/g)].map(([version]) => version),
  ))
    faults.push(`it needs ${library} of the C++ library, which should be linked into it`);
  for (const [, needed = ""] of headers.matchAll(/^\s*NEEDED\s+(\S+)/gm))
    if (!libraries.includes(needed)) faults.push(`it needs ${needed}`);
  return faults;
}

/** Libraries beside the C library's that a file of the package may link. @type {Record<string, readonly string[]>} */
const librariesOf = {
  "cinnabar.node": [],
  "libfabric.so.1": [],
  "libverbs-fi.so": ["libfabric.so.1", "libibverbs.so.1", "librdmacm.so.1"],
};

/**
 * Fails unless the symbols of a file of the package exist on every system that the package promises.
 *
 * @param {import("./targets.mjs").Target} target
 * @param {string} folder
 * @param {string} name
 */
export async function checkSymbols({ triple, needed, name: of }, folder, name) {
  const file = `${folder}/${name}`;
  const objdump = `${triple}-objdump`;
  const symbols = await step(`symbols of ${name}, ${of}`, objdump, ["-T", file]);
  const headers = await step(`libraries of ${name}, ${of}`, objdump, ["-p", file]);
  const faults = faultsOf({ symbols, headers }, [...baseLibraries, ...needed, ...(librariesOf[name] ?? [])]);
  if (faults.length > 0) throw new SetupError(`${file} would not run everywhere: ${faults.join("; ")}.`);
}
