import ts from "typescript";

/** Declarations of a package, and which of them users import. */
export interface Face {
  /** The folder of the declarations. */
  readonly folder: string;
  /** The entries by their name, each with its path below the folder. */
  readonly entries: Readonly<Record<string, string>>;
  /** Other entries whose exports an entry takes for known. */
  readonly beside?: Readonly<Record<string, readonly string[]>>;
}

/**
 * The types that the declarations of an entry mention and no entry exports, each with who mentions it: "LoadReport (of
 * ProvidersReport)". A user could not write them down. What is private or `@internal` is passed over.
 */
export function findUnexported({ folder, entries, beside = {} }: Face): Record<string, string[]> {
  const files = Object.values(entries).map((path) => `${folder}/${path}`);
  const program = ts.createProgram(files, {
    module: ts.ModuleKind.NodeNext,
    moduleResolution: ts.ModuleResolutionKind.NodeNext,
    noLib: true,
    types: [],
  });
  const checker = program.getTypeChecker();
  const exportsOf = (entry: string): Set<ts.Symbol> => {
    const file = program.getSourceFile(`${folder}/${entries[entry]}`);
    const module = file && checker.getSymbolAtLocation(file);
    if (module === undefined) throw new Error(`${entry} is no module of ${folder}`);
    return new Set(checker.getExportsOfModule(module).map((symbol) => resolved(symbol, checker)));
  };
  const isOwn = (node: ts.Node) => node.getSourceFile().fileName.startsWith(`${folder}/`);
  return Object.fromEntries(
    Object.keys(entries).map((entry) => {
      const exported = exportsOf(entry);
      const known = new Set([entry, ...(beside[entry] ?? [])].flatMap((name) => [...exportsOf(name)]));
      const missing = [...exported].flatMap((symbol) =>
        (symbol.declarations ?? [])
          .filter(isOwn)
          .flatMap((declaration) => mentionsOf(declaration, checker))
          .filter((type) => !known.has(type) && type.declarations?.some(isOwn))
          .map((type) => `${type.name} (of ${symbol.name})`),
      );
      return [entry, [...new Set(missing)].sort()];
    }),
  );
}

/** The types that a declaration names, without its private and internal members. */
function mentionsOf(declaration: ts.Declaration, checker: ts.TypeChecker): ts.Symbol[] {
  const found: ts.Symbol[] = [];
  const add = (name: ts.Node) => {
    const symbol = checker.getSymbolAtLocation(name);
    if (symbol !== undefined && (symbol.flags & ts.SymbolFlags.TypeParameter) === 0)
      found.push(resolved(symbol, checker));
  };
  const visit = (node: ts.Node): void => {
    if (isHidden(node)) return;
    if (ts.isTypeReferenceNode(node)) add(node.typeName);
    else if (ts.isExpressionWithTypeArguments(node)) add(node.expression);
    else if (ts.isImportTypeNode(node) && node.qualifier !== undefined) add(node.qualifier);
    ts.forEachChild(node, visit);
  };
  visit(declaration);
  return found;
}

function isHidden(node: ts.Node): boolean {
  if (ts.getJSDocTags(node).some((tag) => tag.tagName.text === "internal")) return true;
  const modifiers = ts.canHaveModifiers(node) ? (ts.getModifiers(node) ?? []) : [];
  return modifiers.some(({ kind }) => kind === ts.SyntaxKind.PrivateKeyword);
}

function resolved(symbol: ts.Symbol, checker: ts.TypeChecker): ts.Symbol {
  return (symbol.flags & ts.SymbolFlags.Alias) === 0 ? symbol : checker.getAliasedSymbol(symbol);
}
