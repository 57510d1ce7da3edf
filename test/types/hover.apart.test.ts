import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { expect, it } from "vitest";

const root = fileURLToPath(new URL("../../", import.meta.url));
const file = `${root}test/types/hovered.ts`;
const methods = {
  greet: "unary({ output: z.string() })",
  count: "serverStream({ output: z.number() })",
  upload: "clientStream({ items: z.number(), output: z.number() })",
  talk: "duplexStream({ items: z.number(), output: z.number() })",
  shout: "oneWay()",
};
const text = `
import { clientStream, duplexStream, oneWay, type Peer, serverStream, service, unary } from "cinnabar";
import { z } from "zod";
const Words = service("words.v1", {
${Object.entries(methods)
  .map(([name, method]) => `  /** What ${name} does. */\n  ${name}: ${method},`)
  .join("\n")}
});
declare const peer: Peer;
const words = peer.client(Words);
words.greet();
words.count();
words.upload([1]);
words.talk([1]);
words.shout();
`;

it("editors show a method's comment of the contract at the client", { timeout: 300_000 }, () => {
  const config = ts.readConfigFile(`${root}tsconfig.json`, ts.sys.readFile).config;
  const { options } = ts.parseJsonConfigFileContent(config, ts.sys, root);
  const service = ts.createLanguageService({
    ...ts.sys,
    useCaseSensitiveFileNames: () => true,
    getScriptFileNames: () => [file],
    getScriptVersion: () => "1",
    getScriptSnapshot(name) {
      if (name === file) return ts.ScriptSnapshot.fromString(text);
      return ts.sys.fileExists(name) ? ts.ScriptSnapshot.fromString(readFileSync(name, "utf8")) : undefined;
    },
    getCurrentDirectory: () => root,
    getCompilationSettings: () => options,
    getDefaultLibFileName: ts.getDefaultLibFilePath,
  });
  const hovers = Object.keys(methods).map((name) => {
    const info = service.getQuickInfoAtPosition(file, text.indexOf(`words.${name}(`) + "words.".length);
    return [name, ts.displayPartsToString(info?.documentation)];
  });
  expect(hovers).toEqual(Object.keys(methods).map((name) => [name, `What ${name} does.`]));
});
