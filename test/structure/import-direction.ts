import { builtinModules } from "node:module";
import { posix } from "node:path";
import ts from "typescript";

/** A source file as the check sees it: its path below `src/`, with slashes, and its text. */
export interface SourceFile {
  readonly path: string;
  readonly text: string;
}

export interface Rules {
  /** Layer names from top to bottom. */
  readonly layers: readonly string[];
  /** Packages that may be imported by name. */
  readonly packages: readonly string[];
}

/**
 * One sentence for each import that points up, leaves `src/`, or names a package that is not declared, and for each file that is in no
 * layer. Type imports count: a layer that needs the types of one above it cannot be understood without it either.
 */
export function findViolations(files: readonly SourceFile[], rules: Rules): string[] {
  return files.flatMap((file) => {
    const layer = layerOf(file.path);
    const height = rules.layers.indexOf(layer);
    if (height < 0)
      return [`${file.path}: "${layer}" is not a layer; the list is in test/structure/layers.ts`];
    return importsOf(file).flatMap((specifier) => {
      if (!specifier.startsWith(".")) {
        return isAllowedPackage(specifier, rules.packages)
          ? []
          : [`${file.path}: imports "${specifier}", which is no declared dependency`];
      }
      const target = posix.join(posix.dirname(file.path), specifier);
      if (target.startsWith("..")) return [`${file.path}: imports "${specifier}" from outside src/`];
      const targetLayer = layerOf(target);
      const targetHeight = rules.layers.indexOf(targetLayer);
      if (targetHeight < 0)
        return [`${file.path}: imports "${specifier}" from "${targetLayer}", which is not a layer`];
      if (targetHeight < height)
        return [`${file.path}: imports "${specifier}", but ${targetLayer} lies above ${layer}`];
      return [];
    });
  });
}

function layerOf(path: string): string {
  const [first = "", ...rest] = path.split("/");
  return rest.length > 0 ? first : first.replace(/\.ts$/, "");
}

/** Static, dynamic, type-only and re-exporting imports alike. */
function importsOf(file: SourceFile): string[] {
  const found = new Set<string>();
  const visit = (node: ts.Node): void => {
    if (
      (ts.isImportDeclaration(node) || ts.isExportDeclaration(node)) &&
      node.moduleSpecifier !== undefined
    ) {
      if (ts.isStringLiteral(node.moduleSpecifier)) found.add(node.moduleSpecifier.text);
    } else if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword) {
      const [argument] = node.arguments;
      if (argument !== undefined && ts.isStringLiteral(argument)) found.add(argument.text);
    } else if (ts.isImportTypeNode(node) && ts.isLiteralTypeNode(node.argument)) {
      if (ts.isStringLiteral(node.argument.literal)) found.add(node.argument.literal.text);
    }
    ts.forEachChild(node, visit);
  };
  visit(ts.createSourceFile(file.path, file.text, ts.ScriptTarget.Latest));
  return [...found];
}

function isAllowedPackage(specifier: string, packages: readonly string[]): boolean {
  if (specifier.startsWith("node:")) return builtinModules.includes(specifier.slice("node:".length));
  return packages.some((name) => specifier === name || specifier.startsWith(`${name}/`));
}
