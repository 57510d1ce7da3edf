import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { faultsOf } from "../../scripts/package/symbols.mjs";
import { baseLibraries, newestGlibc, targets } from "../../scripts/package/targets.mjs";

const root = fileURLToPath(new URL("../..", import.meta.url));
const symbols = "0000 DF *UND* 0000 (GLIBC_2.2.5) memcpy\n0000 DF *UND* 0000 (GLIBC_2.28) fcntl64\n";
const headers = "Dynamic Section:\n  NEEDED               libc.so.6\n  SONAME               cinnabar.node\n";

describe("the check of a binary's symbols", () => {
  it("accepts glibc up to the version that Node itself needs", () => {
    expect(newestGlibc).toEqual([2, 28]);
    expect(faultsOf({ symbols, headers }, baseLibraries)).toEqual([]);
  });

  it.each([
    [
      "a newer glibc",
      { symbols: `${symbols}0000 DF *UND* 0000 (GLIBC_2.34) dlopen\n`, headers },
      "it needs GLIBC_2.34",
    ],
    [
      "glibc 3",
      { symbols: `${symbols}0000 DF *UND* 0000 (GLIBC_3.0) dlopen\n`, headers },
      "it needs GLIBC_3.0",
    ],
    [
      "the C++ library",
      { symbols: `${symbols}0000 DF *UND* 0000 (GLIBCXX_3.4) _ZNSs\n`, headers },
      "GLIBCXX_3.4",
    ],
    [
      "another library",
      { symbols, headers: `${headers}  NEEDED   libfabric.so.1\n` },
      "it needs libfabric.so.1",
    ],
    ["nothing that could be read", { symbols: "", headers }, "objdump has read nothing"],
  ])("refuses %s", (_, said, fault) => {
    expect(faultsOf(said, baseLibraries)).toEqual([expect.stringContaining(fault)]);
  });

  it.each(targets.map(({ name, triple, needed }) => [name, triple, needed] as const))(
    "accepts the binary for %s, where one is built",
    (name, triple, needed) => {
      const file = `${root}build/portable/${name}/cinnabar.node`;
      const objdump = `/usr/bin/${triple}-objdump`;
      if (!existsSync(file) || !existsSync(objdump)) return;
      const ask = (option: string) => execFileSync(objdump, [option, file], { encoding: "utf8" });
      expect(faultsOf({ symbols: ask("-T"), headers: ask("-p") }, [...baseLibraries, ...needed])).toEqual([]);
    },
  );
});
