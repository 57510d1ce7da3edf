import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import ts from "typescript";
import { root } from "./pages.test-support.ts";

/** A text that the library may show to a user. */
export interface Message {
  /** With `…` for each value that is put in. */
  readonly text: string;
  /** `file:line`. */
  readonly at: string;
}

const sources = ["src", "packages"]
  .flatMap(filesOf)
  .filter((file) => /(^|\/)src\/.*\.ts$/.test(file) && !file.includes(".test"));

/**
 * Sentences of these files stand behind "broke the protocol", or in no message: they judge bytes, describe metrics, or
 * make code and stand-ins for tests.
 */
const ofBytes =
  /^packages\/otel\/src\/(metrics\/metric|prometheus\/|bin\/)|^packages\/group\/src\/(collective\/(message|offer)-schema|coordinator\/membership-service|detector\/codec)|^packages\/lanes\/src\/lanes-service|^src\/(wire\/(?!codec|encode-value|extension|value-path|work|metadata\/(?!metadata-block))|fabric\/(mem-port|net\/(frame|transfers)\.)|session\/connection\/opening)/;

/** Parameters that take the text of an error. */
const textParameter = /^(message|text|why|reason|said)$/;

/** Functions that end a session. Their words stand behind "broke the protocol", which has one entry. */
const brokenProtocol = /protocol|malformed|^fault$/i;

/** The fewest words that make a text a sentence, wherever it stands. Fewer count only where an error is made. */
const fewestWords = 5;

function filesOf(folder: string): string[] {
  return execFileSync("git", ["ls-files", "--cached", "--others", "--exclude-standard", folder], {
    cwd: root,
    encoding: "utf8",
  })
    .split("\n")
    .filter((file) => file !== "");
}

export const wordsOf = (text: string): number => text.match(/[A-Za-z_]{2,}/g)?.length ?? 0;

/** Every literal of the TypeScript sources, and those of them that a user may meet in an error or a warning. */
export function messagesOfSources(): { readonly all: Message[]; readonly shown: Message[] } {
  const trees = sources.map((file) => ({
    file,
    tree: ts.createSourceFile(file, readFileSync(root + file, "utf8"), ts.ScriptTarget.Latest, true),
  }));
  const takers = new Map<string, Set<number>>();
  for (const { tree } of trees) each(tree, (node) => noteTaker(node, takers));
  const all: Message[] = [];
  const shown: Message[] = [];
  for (const { file, tree } of trees) {
    const note = (node: ts.Node, into: Message[]) => {
      const at = `${file}:${tree.getLineAndCharacterOfPosition(node.getStart(tree)).line + 1}`;
      for (const text of textsOf(node)) into.push({ text, at });
    };
    each(tree, (node) => {
      if (isText(node) && !isPiece(node)) {
        note(outermost(node), all);
        if (!ofBytes.test(file) && isSentence(node)) note(outermost(node), shown);
      }
      if (ofBytes.test(file)) return;
      for (const text of textsOfErrorsAt(node, takers)) note(text, shown);
    });
  }
  // An error's own text is often a sentence, too.
  const once = new Map(shown.map((message) => [`${message.text} ${message.at}`, message]));
  return { all, shown: [...once.values()].filter(({ text }) => wordsOf(text) >= 2) };
}

/** The texts of C++ sources that say why something cannot be opened or used; adjacent literals are one. */
export function messagesOfAddon(): Message[] {
  const files = filesOf("native").filter(
    (file) => /\/(fabric|engine|transport)\/.*\.(cc|h)$/.test(file) && !/quirks|patches/.test(file),
  );
  return files.flatMap((file) => {
    const code = readFileSync(root + file, "utf8").replaceAll(/(?<=^|\s)\/\/.*$/gm, "");
    return [...code.matchAll(/"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*/g)].map((match) => ({
      text: match[0].replaceAll(/"\s*"/g, "").slice(1, -1).replaceAll('\\"', '"'),
      at: `${file}:${code.slice(0, match.index).split("\n").length}`,
    }));
  });
}

function each(node: ts.Node, visit: (node: ts.Node) => void): void {
  visit(node);
  ts.forEachChild(node, (child) => each(child, visit));
}

/** Notes a function that takes the text of an error, and in which place. */
function noteTaker(node: ts.Node, takers: Map<string, Set<number>>): void {
  if (!ts.isFunctionLike(node)) return;
  const { parent } = node;
  const name = node.name?.getText() ?? (ts.isVariableDeclaration(parent) ? parent.name.getText() : undefined);
  if (name === undefined) return;
  node.parameters.forEach((parameter, index) => {
    if (!textParameter.test(parameter.name.getText())) return;
    takers.set(name, (takers.get(name) ?? new Set()).add(index));
  });
}

/** What stands in the place of an error's or a warning's text, if this node makes one. */
function textsOfErrorsAt(node: ts.Node, takers: ReadonlyMap<string, ReadonlySet<number>>): ts.Node[] {
  if (ts.isPropertyAssignment(node) && node.name.getText() === "message") return [node.initializer];
  if (ts.isNewExpression(node)) {
    const name = node.expression.getText();
    // Faults of bytes have no entry of their own.
    if (!name.endsWith("Error") || name === "DecodeError") return [];
    return (node.arguments ?? []).filter((argument) => !ts.isObjectLiteralExpression(argument));
  }
  if (!ts.isCallExpression(node)) return [];
  const name = nameOf(node);
  if (brokenProtocol.test(name)) return [];
  const places = name === "emitWarning" ? [0] : [...(takers.get(name) ?? [])];
  return places.flatMap((place) => node.arguments[place] ?? []);
}

function nameOf({ expression }: ts.CallExpression): string {
  return ts.isPropertyAccessExpression(expression) ? expression.name.getText() : expression.getText();
}

function isText(node: ts.Node): boolean {
  return (
    ts.isStringLiteral(node) || ts.isNoSubstitutionTemplateLiteral(node) || ts.isTemplateExpression(node)
  );
}

/** Whether the literal is no text at all: the name of a module, a type, a key. */
function isPiece(node: ts.Node): boolean {
  const { parent } = node;
  return ts.isImportDeclaration(parent) || ts.isExportDeclaration(parent) || ts.isLiteralTypeNode(parent);
}

/** The sum of texts that a literal is a part of. */
function outermost(node: ts.Node): ts.Node {
  const { parent } = node;
  const isSum = ts.isBinaryExpression(parent) && parent.operatorToken.kind === ts.SyntaxKind.PlusToken;
  return isSum ? outermost(parent) : node;
}

function isSentence(node: ts.Node): boolean {
  for (let above = node.parent; above !== undefined; above = above.parent) {
    if (ts.isNewExpression(above) && above.expression.getText() === "DecodeError") return false;
    if (ts.isCallExpression(above) && brokenProtocol.test(nameOf(above))) return false;
    if (ts.isStatement(above)) break;
  }
  return textsOf(node).some((text) => wordsOf(text) >= fewestWords);
}

/** What an expression can be as a text. */
function textsOf(node: ts.Node): string[] {
  if (ts.isParenthesizedExpression(node)) return textsOf(node.expression);
  if (ts.isStringLiteral(node) || ts.isNoSubstitutionTemplateLiteral(node)) return [node.text];
  if (ts.isTemplateExpression(node)) {
    return [node.head.text + node.templateSpans.map(({ literal }) => `…${literal.text}`).join("")];
  }
  if (ts.isConditionalExpression(node)) return [...textsOf(node.whenTrue), ...textsOf(node.whenFalse)];
  if (ts.isBinaryExpression(node)) {
    const kind = node.operatorToken.kind;
    if (kind === ts.SyntaxKind.PlusToken) {
      return textsOf(node.left).flatMap((left) => textsOf(node.right).map((right) => left + right));
    }
    if (kind === ts.SyntaxKind.BarBarToken || kind === ts.SyntaxKind.QuestionQuestionToken) {
      return [...textsOf(node.left), ...textsOf(node.right)];
    }
  }
  return ["…"];
}
