import { dirname, isAbsolute, join } from "node:path";

/*
 * The package's files and modules. A bundle has left them where the package is installed. There `import.meta.url` is
 * undefined (CommonJS of esbuild), or names the file as it was on the machine that made the bundle (webpack): then the
 * program's folder tells where to look, and at last the working folder.
 */

let required: NodeJS.Require | undefined;

/** `require` as seen from this package, made at first use. */
export function ownRequire(): NodeJS.Require {
  required ??= requireFrom(origins()[0] as string);
  return required;
}

/**
 * The folder of the installed package, for what a bundle has left there; undefined where there is none. The package
 * finds itself by its own name.
 */
export function packageFolder(): string | undefined {
  for (const origin of origins()) {
    try {
      return dirname(requireFrom(origin).resolve("cinnabar/package.json"));
    } catch {
      // Not from there.
    }
  }
  return undefined;
}

/** Files whose folders, and those above, may have the package in `node_modules`. */
function origins(): string[] {
  const here: string | undefined = import.meta.url;
  const program = process.argv[1];
  return [here, program, join(process.cwd(), "package.json")].filter(
    (path) => path !== undefined && (path.startsWith("file:") || isAbsolute(path)),
  ) as string[];
}

function requireFrom(origin: string): NodeJS.Require {
  // Not imported: webpack puts a function of its own in the place of an imported `createRequire`.
  const { createRequire } = process.getBuiltinModule("node:module");
  return createRequire(origin);
}
