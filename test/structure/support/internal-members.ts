import { posix } from "node:path";
import ts from "typescript";

/** What the check looks at. */
export interface InternalRules {
  /** Files whose exports are public, below the program's `src/`. */
  readonly entries: readonly string[];
  /** The folder of the sources, with slashes and without one at its end. */
  readonly root: string;
}

/**
 * One sentence for each use, in another folder of `src/`, of a member marked `@internal` of a class that users get.
 * Such a member is in everybody's completions, and two folders depend on it that the import direction does not know of.
 * What a folder needs of such a class stands in an interface of its own, in a class that the public one wraps, or in a
 * function beside the class.
 *
 * The type checker decides whose member a name is: a member of the same name elsewhere is none, and neither is one that
 * is reached through an interface which does not say `@internal`. A constructor is no member here: no object has it,
 * and the folder that composes must call it.
 */
export function findInternalUses(program: ts.Program, rules: InternalRules): string[] {
  const checker = program.getTypeChecker();
  const internals = internalMembers(program, checker, rules);
  const names = new Set([...internals.values()].map(({ member }) => member));
  return program.getSourceFiles().flatMap((file) => {
    const folder = folderOf(file.fileName, rules.root);
    if (folder === undefined || isTest(file.fileName)) return [];
    return usesIn(file, checker, names).flatMap(({ symbol, line }) => {
      const used = symbol.declarations?.flatMap((declaration) => internals.get(declaration) ?? [])[0];
      if (used === undefined || used.folder === folder) return [];
      const path = posix.relative(rules.root, file.fileName);
      return [
        `${path}:${line}: uses ${used.className}.${used.member}, which is @internal in ${used.folder}/`,
      ];
    });
  });
}

interface InternalMember {
  readonly member: string;
  readonly className: string;
  readonly folder: string;
}

function internalMembers(
  program: ts.Program,
  checker: ts.TypeChecker,
  { entries, root }: InternalRules,
): Map<ts.Declaration, InternalMember> {
  const found = new Map<ts.Declaration, InternalMember>();
  for (const entry of entries) {
    const file = program.getSourceFile(`${root}/${entry}`);
    const module = file === undefined ? undefined : checker.getSymbolAtLocation(file);
    if (module === undefined) throw new Error(`${root}/${entry} is no module of the program`);
    for (const exported of checker.getExportsOfModule(module)) {
      const symbol = exported.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(exported) : exported;
      if (!(symbol.flags & ts.SymbolFlags.Class)) continue;
      const instance = checker.getDeclaredTypeOfSymbol(symbol).getProperties();
      const statics = [...(symbol.exports?.values() ?? [])];
      for (const member of [...instance, ...statics]) {
        // By declaration: in each instantiation of a generic class a member has a symbol of its own.
        for (const declaration of member.declarations?.filter(isInternal) ?? []) {
          const folder = folderOf(declaration.getSourceFile().fileName, root);
          if (folder !== undefined)
            found.set(declaration, { member: member.name, className: symbol.name, folder });
        }
      }
    }
  }
  return found;
}

function isInternal(declaration: ts.Declaration): boolean {
  return ts.getJSDocCommentsAndTags(declaration).some((comment) => /@internal\b/.test(comment.getText()));
}

/** Where members are named: `a.member`, `a["member"]`, `const { member } = a`, `({ member } = a)`. */
function usesIn(file: ts.SourceFile, checker: ts.TypeChecker, names: ReadonlySet<string>) {
  const uses: { symbol: ts.Symbol; line: number }[] = [];
  const add = (node: ts.Node, symbol: ts.Symbol | undefined) => {
    if (symbol === undefined) return;
    const { line } = file.getLineAndCharacterOfPosition(node.getStart(file));
    uses.push({ symbol, line: line + 1 });
  };
  const visit = (node: ts.Node): void => {
    if (ts.isPropertyAccessExpression(node)) {
      if (names.has(node.name.text)) add(node.name, checker.getSymbolAtLocation(node.name));
    } else if (ts.isElementAccessExpression(node)) {
      const { argumentExpression: key } = node;
      if (ts.isStringLiteralLike(key) && names.has(key.text))
        add(key, checker.getTypeAtLocation(node.expression).getProperty(key.text));
    } else if (ts.isBindingElement(node) && ts.isObjectBindingPattern(node.parent)) {
      const key = node.propertyName ?? node.name;
      if ((ts.isIdentifier(key) || ts.isStringLiteralLike(key)) && names.has(key.text))
        add(key, checker.getTypeAtLocation(node.parent).getProperty(key.text));
    }
    ts.forEachChild(node, visit);
  };
  visit(file);
  return uses;
}

function folderOf(fileName: string, root: string): string | undefined {
  if (!fileName.startsWith(`${root}/`)) return undefined;
  return posix.dirname(posix.relative(root, fileName));
}

function isTest(path: string): boolean {
  return /\.test(-[a-z]+)*\.ts$/.test(path);
}
