import { dirname, join } from "node:path";

let required: NodeJS.Require | undefined;

/**
 * `require` as seen from this package, made at first use. In a bundle of CommonJS `import.meta.url` is undefined; what
 * is looked for is then found from the folder of the program.
 */
export function ownRequire(): NodeJS.Require {
  const here: string | undefined = import.meta.url;
  // Not imported: webpack puts a function of its own in the place of an imported `createRequire`.
  const { createRequire } = process.getBuiltinModule("node:module");
  required ??= createRequire(here ?? join(process.cwd(), "package.json"));
  return required;
}

/**
 * The folder of the installed package, for what a bundle has left there; undefined where there is none. The package
 * finds itself by its own name.
 */
export function packageFolder(): string | undefined {
  try {
    return dirname(ownRequire().resolve("cinnabar/package.json"));
  } catch {
    return undefined;
  }
}
