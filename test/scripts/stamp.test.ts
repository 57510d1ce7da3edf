import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { root } from "../../scripts/setup/command.mjs";
import { fingerprint } from "../../scripts/setup/stamp.mjs";

it("a fingerprint knows the sources of a folder, and no build that lies beside them", () => {
  const folder = mkdtempSync(join(tmpdir(), "cinnabar-stamp-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const write = (...names: string[]) => {
    const file = join(folder, ...names);
    mkdirSync(join(file, ".."), { recursive: true });
    writeFileSync(file, "");
  };
  const print = () => fingerprint([relative(root, folder)]);
  write("engine", "port.cc");
  const sources = print();
  for (const build of ["build", "build-debug", "build-linux-x64-glibc", "dist", "node_modules"])
    write(build, "port.o");
  expect(print()).toBe(sources);
  write("engine", "build-id.cc");
  expect(print()).not.toBe(sources);
});
