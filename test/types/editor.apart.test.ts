import { readFileSync } from "node:fs";
import { join } from "node:path";
import ts from "typescript";
import { describe, expect, it } from "vitest";
import { here } from "./compilers.ts";

/** What an editor has open: it exists in memory only. */
const probe = join(here, "probe-of-editors.ts");

/** The classes and interfaces whose members users are offered. */
const offered = [
  ...["BalancedPeer", "BorrowedRegion", "CallContext", "Engine", "Histogram", "OwnMemory", "Peer", "Pool"],
  ...["PooledMemory", "Region<'read'>", "RegionHandle<'read'>", "RemoteRegion<'read'>", "Transfer"],
].map((type) => `cinnabar.${type}`);
offered.push("bulk.BulkStream<'read'>", "bulk.RemoteStream<'read'>");

const text = `
import type * as cinnabar from "../../src/index.ts";
import type * as bulk from "../../packages/bulk/src/index.ts";
import { service, unary } from "../../src/index.ts";
import { z } from "zod";
const Greeter = service("greeter.v1", {
  /** Greets somebody by name. */
  greet: unary({ input: z.object({ name: z.string() }), output: z.string() }),
});
declare const peer: cinnabar.Peer;
peer.client(Greeter).greet({ name: "a" });
${offered.map((type, i) => `declare const value${i}: ${type};\nvalue${i}.;`).join("\n")}
`;

const config = ts.readConfigFile(join(here, "tsconfig.json"), ts.sys.readFile);
const { options } = ts.parseJsonConfigFileContent(config.config, ts.sys, here);
const service = ts.createLanguageService({
  useCaseSensitiveFileNames: () => true,
  getCompilationSettings: () => options,
  getScriptFileNames: () => [probe],
  getScriptVersion: () => "1",
  getScriptSnapshot(file) {
    if (file === probe) return ts.ScriptSnapshot.fromString(text);
    return ts.sys.fileExists(file) ? ts.ScriptSnapshot.fromString(readFileSync(file, "utf8")) : undefined;
  },
  getCurrentDirectory: () => here,
  getDefaultLibFileName: ts.getDefaultLibFilePath,
  fileExists: (file) => file === probe || ts.sys.fileExists(file),
  readFile: ts.sys.readFile,
  directoryExists: ts.sys.directoryExists,
  getDirectories: ts.sys.getDirectories,
});

describe("an editor", () => {
  it("shows the comment of a method in the contract where the client calls it", () => {
    const info = service.getQuickInfoAtPosition(probe, text.indexOf(".greet({") + 2);
    expect(ts.displayPartsToString(info?.documentation)).toBe("Greets somebody by name.");
  });

  it.each(offered.map((type, i) => [type, i] as const))("offers no internal member of %s", (_, i) => {
    const at = text.indexOf(`value${i}.;`) + `value${i}.`.length;
    const entries = service.getCompletionsAtPosition(probe, at, {})?.entries ?? [];
    expect(entries.length).toBeGreaterThan(0);
    const internal = entries.filter(({ name }) => {
      const details = service.getCompletionEntryDetails(probe, at, name, {}, undefined, {}, undefined);
      return details?.tags?.some((tag) => tag.name === "internal") ?? false;
    });
    expect(internal.map(({ name }) => name)).toEqual([]);
  });
});
