import { dirname, isAbsolute, join } from "node:path";

/*
 * The package's files and modules. A bundle leaves them in the installed package. In a bundle `import.meta.url` is
 * undefined (CommonJS of esbuild), or names the file on the machine that made the bundle (webpack). Then the package is
 * looked for from the program's folder, and at last from the working folder.
 */

let required: NodeJS.Require | undefined;

/** `require` as seen from this package, made at first use. */
export function ownRequire(): NodeJS.Require {
  required ??= requireFrom(origins()[0] as string);
  return required;
}

/**
 * The folder of the installed package, for the files that a bundle leaves there; undefined if it is not installed. The
 * package finds itself by its own name.
 */
export function packageFolder(): string | undefined {
  for (const origin of origins()) {
    try {
      return dirname(requireFrom(origin).resolve("cinnabar/package.json"));
    } catch {
      // Not installed there.
    }
  }
  return undefined;
}

/** Files in folders that may have the package in `node_modules`, there or further up. */
function origins(): string[] {
  const here: string | undefined = import.meta.url;
  const program = process.argv[1];
  return [here, program, join(process.cwd(), "package.json")].filter(
    (path) => path !== undefined && (path.startsWith("file:") || isAbsolute(path)),
  ) as string[];
}

function requireFrom(origin: string): NodeJS.Require {
  // Not imported: webpack replaces an imported `createRequire` with its own function.
  const { createRequire } = process.getBuiltinModule("node:module");
  return createRequire(origin);
}
