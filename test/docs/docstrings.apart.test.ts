import ts from "typescript";
import { describe, expect, it } from "vitest";
import { root } from "./pages.test-support.ts";

const entries = ["index", "standard", "contract", "contract/standard"].map((name) => `${root}src/${name}.ts`);
const { config } = ts.readConfigFile(`${root}tsconfig.json`, ts.sys.readFile);
const { options } = ts.parseJsonConfigFileContent(config, ts.sys, root);
const program = ts.createProgram(entries, options);
const checker = program.getTypeChecker();

const exported = new Map(
  entries.flatMap((entry) => {
    const file = program.getSourceFile(entry);
    const module = file && checker.getSymbolAtLocation(file);
    return (module ? checker.getExportsOfModule(module) : []).map((symbol) => {
      const isAlias = (symbol.flags & ts.SymbolFlags.Alias) !== 0;
      return [symbol.name, isAlias ? checker.getAliasedSymbol(symbol) : symbol] as const;
    });
  }),
);

const docOf = (symbol: ts.Symbol) => ts.displayPartsToString(symbol.getDocumentationComment(checker)).trim();

/** An option that its user may leave out. */
interface Option {
  /** `EngineOptions.heartbeatMs`. */
  readonly path: string;
  readonly doc: string;
  readonly isNumber: boolean;
  /** A number, a boolean or one of several words: something holds where it is left out. */
  readonly isChoice: boolean;
}

const optional = [...exported].flatMap(([name, symbol]): Option[] => {
  // What an error is made of are facts, and no options.
  if (!/(Options|Limits|Init)$/.test(name) || name === "RpcErrorOptions") return [];
  const type = checker.getDeclaredTypeOfSymbol(symbol);
  return type.getProperties().flatMap((property) => {
    const declaration = property.valueDeclaration;
    const isOption = declaration !== undefined && (property.flags & ts.SymbolFlags.Optional) !== 0;
    if (!isOption) return [];
    const plain = checker.getNonNullableType(checker.getTypeOfSymbolAtLocation(property, declaration));
    const parts = plain.isUnion() ? plain.types : [plain];
    const hasAll = (flags: ts.TypeFlags) => parts.every((part) => (part.flags & flags) !== 0);
    return [
      {
        path: `${name}.${property.name}`,
        doc: docOf(property),
        isNumber: hasAll(ts.TypeFlags.NumberLike),
        isChoice: hasAll(ts.TypeFlags.NumberLike | ts.TypeFlags.BooleanLike | ts.TypeFlags.StringLiteral),
      },
    ];
  });
});

/** What an option's docstring says of a user who leaves it out. */
const saysDefault =
  /\bdefault|\bwithout (it|one|them|this)\b|\bunless\b|\bif (it|they) (is|are) left out\b|\bnone\b/i;

/** A unit in the name, or in words. */
const unitInName = /(Ms|Bytes|Bits)$|^(perSecond|everyMs)$/;
const unitInWords =
  /\b(milliseconds?|bytes|KiB|MiB|GiB|how many|number of|count|times|requests|calls|attempts|retries|lanes?|threads|backends|handlers|connections|sessions|peers|items|chunks?|operations|share|ratio|hops?|port|levels?|index|device|element|keys|from -?\d|at most|byte|handshakes)\b/i;

describe("the docstrings of what the package exports", () => {
  it("say of each export what it is", () => {
    expect(exported.size).toBeGreaterThan(100);
    expect([...exported].filter(([, symbol]) => docOf(symbol) === "").map(([name]) => name)).toEqual([]);
  });

  it("say of each option what holds without it", () => {
    expect(optional.length).toBeGreaterThan(80);
    expect(
      optional
        .filter(({ doc, isChoice }) => isChoice && !saysDefault.test(doc))
        .map(({ path, doc }) => `${path}: ${doc}`),
    ).toEqual([]);
  });

  it("name the unit of each number, in its name or in words", () => {
    const without = optional.filter(
      ({ path, doc, isNumber }) => isNumber && !unitInName.test(path) && !unitInWords.test(doc),
    );
    expect(without.map(({ path, doc }) => `${path}: ${doc}`)).toEqual([]);
  });
});
