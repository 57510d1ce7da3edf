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
 * One sentence for each import that points up, leaves `src/`, or names a package that is not declared, and for each
 * file that is in no layer. Type imports count: a layer that needs the types of one above it cannot be understood
 * without it either.
 */
export function findViolations(files: readonly SourceFile[], rules: Rules): string[] {
  return files.flatMap((file) => {
    const layer = layerOf(file.path, rules.layers);
    const height = rules.layers.indexOf(layer);
    if (height < 0)
      return [`${file.path}: "${layer}" is not a layer; the list is in test/structure/support/layers.ts`];
    return importsOf(file).flatMap((specifier) => {
      if (!specifier.startsWith(".")) {
        return isAllowedPackage(specifier, rules.packages)
          ? []
          : [`${file.path}: imports "${specifier}", which is no declared dependency`];
      }
      const target = posix.join(posix.dirname(file.path), specifier);
      if (target.startsWith("..")) return [`${file.path}: imports "${specifier}" from outside src/`];
      const targetLayer = layerOf(target, rules.layers);
      const targetHeight = rules.layers.indexOf(targetLayer);
      if (targetHeight < 0)
        return [`${file.path}: imports "${specifier}" from "${targetLayer}", which is not a layer`];
      if (targetHeight < height)
        return [`${file.path}: imports "${specifier}", but ${targetLayer} lies above ${layer}`];
      return [];
    });
  });
}

/**
 * The circles among the files: each is a list of files that reach one another by their imports. Type imports count:
 * files that cannot be read without each other are one file in pieces.
 */
export function findCircles(files: readonly SourceFile[]): string[][] {
  const imports = new Map(files.map((file) => [file.path, targetsOf(file)]));
  const visited = new Map<string, { order: number; lowest: number; open: boolean }>();
  const stack: string[] = [];
  const circles: string[][] = [];
  // Tarjan, "Depth-first search and linear graph algorithms", 1972.
  const visit = (path: string) => {
    const own = { order: visited.size, lowest: visited.size, open: true };
    visited.set(path, own);
    stack.push(path);
    for (const target of imports.get(path) ?? []) {
      if (!imports.has(target)) continue;
      const seen = visited.get(target);
      if (seen === undefined) own.lowest = Math.min(own.lowest, visit(target).lowest);
      else if (seen.open) own.lowest = Math.min(own.lowest, seen.order);
    }
    if (own.lowest === own.order) {
      const circle = stack.splice(stack.indexOf(path));
      for (const member of circle) (visited.get(member) as typeof own).open = false;
      if (circle.length > 1) circles.push(circle.sort());
    }
    return own;
  };
  for (const path of imports.keys()) if (!visited.has(path)) visit(path);
  return circles;
}

/** The packages that a file imports, and all files that it reaches. */
export function packagesReachedFrom(files: readonly SourceFile[], entry: string): string[] {
  const byPath = new Map(files.map((file) => [file.path, file]));
  const packages = new Set<string>();
  const reached = new Set([entry]);
  for (const path of reached) {
    const file = byPath.get(path);
    if (file === undefined) continue;
    for (const target of targetsOf(file)) reached.add(target);
    for (const specifier of importsOf(file)) if (!specifier.startsWith(".")) packages.add(specifier);
  }
  return [...packages];
}

function targetsOf(file: SourceFile): string[] {
  return importsOf(file)
    .filter((specifier) => specifier.startsWith("."))
    .map((specifier) => posix.join(posix.dirname(file.path), specifier));
}

/** The layer that a file belongs to: the nearest folder that the list names, or else the folder that it stands in. */
function layerOf(path: string, layers: readonly string[]): string {
  const folder = posix.dirname(path);
  if (folder === ".") return path.replace(/\.ts$/, "");
  for (let nearest = folder; nearest !== "."; nearest = posix.dirname(nearest))
    if (layers.includes(nearest)) return nearest;
  return folder;
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
