import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";

interface LockedPackage {
  readonly dev?: boolean;
  readonly hasInstallScript?: boolean;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
}

describe.each(["package-lock.json", "site/package-lock.json"])("%s", (file) => {
  const lock = JSON.parse(readFileSync(new URL(`../../${file}`, import.meta.url), "utf8"));
  const packages: Readonly<Record<string, LockedPackage>> = lock.packages;

  // npm drops what the registry at hand did not have when the file was written, and `npm ci` then refuses the file
  // wherever the registry has it. An entry of name, version, os and cpu is enough to repair it.
  it("has an entry for the optional packages of every platform", () => {
    const missing = Object.values(packages)
      .flatMap(({ optionalDependencies = {} }) => Object.keys(optionalDependencies))
      .filter((name) => packages[`node_modules/${name}`] === undefined);
    expect(missing).toEqual([]);
  });
});

it("package-lock.json has no package with an install script that users of the packages install", () => {
  const lock = JSON.parse(readFileSync(new URL("../../package-lock.json", import.meta.url), "utf8"));
  const packages: Readonly<Record<string, LockedPackage>> = lock.packages;
  const installed = Object.entries(packages).filter(([path, { dev }]) => path !== "" && dev !== true);
  expect(installed.map(([path]) => path)).toContain("node_modules/@standard-schema/spec");
  expect(installed.filter(([, { hasInstallScript }]) => hasInstallScript === true)).toEqual([]);
});
