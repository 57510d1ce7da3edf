import { execFile, execFileSync, spawnSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { rolldown } from "rolldown";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { neededBy } from "../../scripts/package/other-packages.mjs";
import { faultsOfOther, hasCode } from "../../scripts/test-package/contents.mjs";
import { linksOf } from "../docs/links.test-support.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));
const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { version: string };
const folder = mkdtempSync(join(tmpdir(), "cinnabar-pack-"));
const execute = promisify(execFile);
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** The checkout as a clone has it: what git knows, and nothing that was built. */
function clone(name: string): string {
  const target = join(folder, name);
  const files = execFileSync("git", ["ls-files", "-co", "--exclude-standard", "-z"], {
    cwd: root,
    encoding: "utf8",
  });
  for (const file of files.split("\0"))
    if (file !== "" && existsSync(join(root, file))) cpSync(join(root, file), join(target, file));
  return target;
}

/** Runs a program, and says what it printed. */
function run(cwd: string, command: string, ...args: string[]) {
  const { status, stdout, stderr } = spawnSync(command, args, {
    cwd,
    encoding: "utf8",
    env: { PATH: process.env.PATH, HOME: folder, npm_config_offline: "true" },
  });
  return { status, stdout, stderr };
}

/** The folder of a checkout that the sources of a map are in, by the scheme of their addresses. */
const foldersOfSources: Readonly<Record<string, string>> = {
  "cinnabar:": "",
  "cinnabar-bulk:": "packages/bulk",
  "cinnabar-group:": "packages/group",
  "cinnabar-http:": "packages/http",
  "cinnabar-inspect:": "packages/inspect",
  "cinnabar-lanes:": "packages/lanes",
  "cinnabar-nest:": "packages/nest",
  "cinnabar-nvme:": "packages/nvme",
  "cinnabar-otel:": "packages/otel",
  "cinnabar-serve:": "packages/serve",
};

/**
 * Source maps whose sources a debugger cannot show. The package has no TypeScript, so each map holds its sources, and
 * names them by addresses that are no paths.
 */
function faultsOfMaps(packed: string, files: readonly string[], checkout: string): string[] {
  const maps = files.filter((name) => name.endsWith(".map"));
  expect(maps.length).toBeGreaterThan(0);
  return maps.filter((map) => {
    const { sourceRoot, sources, sourcesContent } = JSON.parse(readFileSync(join(packed, map), "utf8")) as {
      sourceRoot: string;
      sources: string[];
      sourcesContent: string[] | undefined;
    };
    return sources.some((source, index) => {
      const { protocol, pathname } = new URL(source, sourceRoot);
      const file = join(checkout, foldersOfSources[protocol] ?? "nowhere", pathname);
      return !existsSync(file) || readFileSync(file, "utf8") !== sourcesContent?.[index];
    });
  });
}

/** Links of documents that lead to nothing in the package. */
function deadLinks(packed: string, files: readonly string[]): string[] {
  const pages = files.filter((name) => name.endsWith(".md"));
  expect(pages).toContain("README.md");
  return pages.flatMap((page) =>
    linksOf(packed, page)
      .filter(
        (link) => !link.startsWith("#") && !existsSync(join(packed, page, "..", link.split("#")[0] ?? "")),
      )
      .map((link) => `${page}: ${link}`),
  );
}

it("`npm pack` of a clone without dependencies fails, and says what to do", () => {
  const { status, stdout, stderr } = run(clone("bare"), "npm", "pack");
  expect(status).not.toBe(0);
  expect(stdout + stderr).toContain(
    "the package cannot be made: its dependencies are not installed: run `npm ci`",
  );
  expect(readdirSync(join(folder, "bare")).filter((name) => name.endsWith(".tgz"))).toEqual([]);
});

describe("the package that `npm pack` makes of a clone", () => {
  const user = join(folder, "user");
  const installed = join(user, "node_modules/cinnabar");
  const checkout = join(folder, "checkout");
  let files: string[] = [];
  let archive = "";

  beforeAll(() => {
    clone("checkout");
    symlinkSync(join(root, "node_modules"), join(checkout, "node_modules"));
    const { status, stdout, stderr } = run(checkout, "npm", "pack", "--json");
    expect(status, stderr).toBe(0);
    const [{ filename }] = JSON.parse(stdout.slice(stdout.indexOf("[\n"))) as [{ filename: string }];
    archive = join(checkout, filename);
    mkdirSync(installed, { recursive: true });
    execFileSync("tar", ["-xzf", archive, "--strip-components=1", "-C", installed]);
    writeFileSync(join(user, "package.json"), '{ "name": "user" }');
    for (const name of ["zod", "@standard-schema"])
      symlinkSync(join(root, "node_modules", name), join(user, "node_modules", name));
    files = readdirSync(installed, { recursive: true }).map(String);
  });

  it("leaves the checkout with a command that can be run, and does not touch what is current", async () => {
    const command = join(checkout, "dist/cli/bin/cinnabar.js");
    const before = statSync(command);
    expect(before.mode & 0o111).toBe(0o111);
    const stale = join(checkout, "dist/cli/stale.js");
    writeFileSync(stale, "");
    // Two at a time, as stages of the tests or commands may pack.
    const packed = [1, 2].map(() => execute(process.execPath, ["scripts/build.mjs"], { cwd: checkout }));
    for (const { stderr } of await Promise.all(packed)) expect(stderr).toBe("");
    expect(existsSync(stale)).toBe(false);
    expect(readdirSync(join(checkout, "build")).filter((name) => name.startsWith("package-"))).toEqual([]);
    const { ino, mtimeMs, mode } = statSync(command);
    expect({ ino, mtimeMs, mode }).toEqual({ ino: before.ino, mtimeMs: before.mtimeMs, mode: before.mode });
  });

  it("has its code, its types and its command, and no tests", () => {
    for (const file of ["dist/index.js", "dist/index.d.ts", "dist/cli/bin/cinnabar.js"])
      expect(files).toContain(file);
    expect(files.filter((file) => file.endsWith(".test.js"))).toEqual([]);
  });

  it("has its code in few files, in which classes keep their names", () => {
    const code = files.filter((file) => file.startsWith("dist/") && file.endsWith(".js"));
    // Ten entries, what they share, and each command by itself. Each module in a file of its own would be more than 300.
    expect(code.length).toBeLessThan(50);
    const program = `
      const all = { ...(await import("cinnabar")), ...(await import("cinnabar/testing")) };
      for (const [name, value] of Object.entries(all))
        if (typeof value === "function" && value.name !== name) console.log(name, value.name);
    `;
    expect(run(user, process.execPath, "--input-type=module", "--eval", program)).toMatchObject({
      ...{ status: 0, stdout: "", stderr: "" },
    });
  });

  it("has one class of an error for all entries, so that each knows the errors of the others", () => {
    const program = `
      import { RpcError } from "cinnabar";
      import * as standard from "cinnabar/standard";
      import * as contract from "cinnabar/contract";
      import * as plain from "cinnabar/contract/standard";
      import { connected } from "cinnabar/testing";
      const Empty = plain.service("empty.v1", { run: plain.unary() });
      const pair = await connected(Empty, standard.implement(Empty, { run() {} }));
      await pair.close();
      const error = await pair.client.run().catch((it) => it);
      console.log([standard, contract, plain].every((entry) => entry.RpcError === RpcError), error instanceof RpcError);
    `;
    const { stdout, stderr } = run(user, process.execPath, "--input-type=module", "--eval", program);
    expect(stdout, stderr).toBe("true true\n");
  });

  it("has source maps with the sources in them: the stack of an error names the line that threw it", () => {
    const program = 'import { Engine } from "cinnabar"; await Engine.open({ listen: 5 });';
    const { status, stderr } = run(
      user,
      process.execPath,
      ...["--enable-source-maps", "--input-type=module", "--eval", program],
    );
    expect(status).toBe(1);
    const [, file = "", line = ""] = /^cinnabar:\/\/\/(src\/\S+\.ts):(\d+)\n/m.exec(stderr) ?? [];
    const thrower = readFileSync(join(root, file), "utf8").split("\n")[Number(line) - 1];
    expect(thrower).toContain("throw new kind(");
    // Node shows the line above the error: it has it from the map.
    expect(stderr).toContain(thrower);
  });

  it("has a source map for each file with code, whose sources are in it as they are in the checkout", () => {
    const unmapped = files.filter(
      (file) => /^dist\/(?!.*\bbin\/).*\.js$/.test(file) && !files.includes(`${file}.map`),
    );
    expect(unmapped.filter((file) => hasCode(readFileSync(join(installed, file), "utf8")))).toEqual([]);
    expect(faultsOfMaps(installed, files, checkout)).toEqual([]);
  });

  it("has documents whose links lead to files of the package", () => {
    expect(deadLinks(installed, files)).toEqual([]);
  });

  it("has a command `cinnabar`", () => {
    const command = join(installed, "dist/cli/bin/cinnabar.js");
    expect(run(user, process.execPath, command, "--version").stdout).toBe(`${version}\n`);
    const { status, stdout } = run(user, process.execPath, command, "info", "--json");
    expect(status).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({ versions: { cinnabar: version } });
  });

  it("goes with every other package: npm installs both in a new project, and a program uses them", {
    timeout: 600_000,
  }, () => {
    const packing = `
      import { packOthers } from "./scripts/package/other-packages.mjs";
      for (const { file } of await packOthers(process.cwd())) console.log("packed " + file);
    `;
    const { status, stdout, stderr } = run(
      checkout,
      process.execPath,
      "--input-type=module",
      "--eval",
      packing,
    );
    expect(status, stderr).toBe(0);
    const others = [...stdout.matchAll(/^packed (.*)$/gm)].map(([, file = ""]) => file);
    expect(others.map((file) => basename(file))).toContain(`cinnabar-group-${version}.tgz`);
    for (const other of others) {
      const name = basename(other, `-${version}.tgz`);
      const project = join(folder, `project-of-${name}`);
      mkdirSync(project);
      // No registry is asked: what `cinnabar` and the package depend on is here.
      const needed = ["@standard-schema/spec", ...(name === "cinnabar-otel" ? ["@opentelemetry/api"] : [])];
      const dependencies = Object.fromEntries(
        needed.map((each) => [each, `file:${join(root, "node_modules", each)}`]),
      );
      writeFileSync(join(project, "package.json"), JSON.stringify({ type: "module", dependencies }));
      const beside = neededBy(name).map(({ manifest }) =>
        others.find((file) => basename(file) === `${manifest.name}-${version}.tgz`),
      ) as string[];
      // npm would look for what Nest's packages need beside each of them, which only a registry has.
      const isOfNest = name === "cinnabar-nest";
      const args = ["--no-audit", "--no-fund", ...(isOfNest ? ["--legacy-peer-deps"] : [])];
      const install = run(project, "npm", "install", ...args, archive, ...beside, other);
      expect(install, install.stderr).toMatchObject({ status: 0 });
      for (const each of isOfNest ? ["@nestjs", "reflect-metadata", "rxjs"] : [])
        symlinkSync(join(root, "node_modules", each), join(project, "node_modules", each));
      const names = readdirSync(join(project, "node_modules", name), { recursive: true }).map(String);
      const unpacked = join(project, "node_modules", name);
      expect(faultsOfOther(names)).toEqual([]);
      expect(faultsOfMaps(unpacked, names, checkout)).toEqual([]);
      expect(deadLinks(unpacked, names)).toEqual([]);
      cpSync(join(root, `test/package/programs/${name}.mjs`), join(project, "program.mjs"));
      expect(run(project, process.execPath, "program.mjs")).toEqual({
        ...{ status: 0, stdout: `${name} works\n`, stderr: "" },
      });
    }
  });

  it("is not what `npm pack` makes of a folder of packages/, which it refuses", () => {
    const refused = run(join(checkout, "packages/group"), "npm", "pack");
    expect(refused.status).not.toBe(0);
    expect(refused.stderr).toContain("Publish the files that `npm run release` makes");
    expect(readdirSync(join(checkout, "packages/group")).filter((name) => name.endsWith(".tgz"))).toEqual([]);
  });

  const program = `
    import { Engine, implement, service, unary } from "cinnabar";
    import { z } from "zod";
    const Hello = service("hello.v1", { hello: unary({ output: z.string() }) });
    const server = await Engine.open({ listen: "mem://hello", serve: [implement(Hello, { hello: () => "hello" })] });
    const engine = await Engine.open();
    console.log(await (await engine.connect("mem://hello")).client(Hello).hello());
    console.log(await Engine.open({ listen: "tcp://127.0.0.1:0" }).catch(({ message }) => message));
    await engine.close();
    await server.close();
  `;

  it("says over mem:// hello, and where it has looked for the addon", () => {
    writeFileSync(join(user, "hello.mjs"), program);
    const { stdout, stderr } = run(user, process.execPath, "hello.mjs");
    expect(stdout, stderr).toMatch(/^hello\n/);
    expect(stdout).toContain(`${installed}/native/build/Release/cinnabar.node`);
  });

  const binaries = "The package has binaries for Linux on x64 and arm64 with glibc 2.28 or later";
  it.each([
    [
      "macOS",
      { platform: "darwin", arch: "arm64" },
      `${binaries}, and its sources build on Linux only`,
      "Linux only",
    ],
    [
      "Windows",
      { platform: "win32", arch: "x64" },
      `${binaries}, and its sources build on Linux only`,
      "Linux only",
    ],
    ["musl", { isMusl: true }, "take an image such as node:24-slim", "take an image such as node:24-slim"],
    [
      "riscv64",
      { arch: "riscv64" },
      `${binaries}, not for riscv64. Build it by npx cinnabar build`,
      undefined,
    ],
  ])("on %s works over mem://, and says for tcp:// what is supported", (_, machine, said, saidByBuild) => {
    const { isMusl = false, ...names } = { ...machine } as { isMusl?: boolean };
    writeFileSync(
      join(user, "machine.mjs"),
      `for (const [name, value] of Object.entries(${JSON.stringify(names)}))
        Object.defineProperty(process, name, { value });
      const report = process.report.getReport();
      if (${isMusl}) delete report.header.glibcVersionRuntime;
      Object.defineProperty(process, "report", { value: { getReport: () => report } });`,
    );
    writeFileSync(join(user, "hello.mjs"), program);
    const on = (...args: string[]) => run(user, process.execPath, "--import", "./machine.mjs", ...args);
    const { stdout, stderr } = on("hello.mjs");
    expect(stdout, stderr).toMatch(/^hello\n\[unavailable\] cinnabar's native addon was not found; tried /m);
    expect(stdout).toContain(said);
    expect(stdout).toContain("mem://");
    const command = join(installed, "dist/cli/bin/cinnabar.js");
    expect(on(command, "info")).toMatchObject({
      status: 0,
      stdout: expect.stringContaining("addon not loaded"),
    });
    if (saidByBuild === undefined) return;
    expect(on(command, "build")).toMatchObject({ status: 1, stderr: expect.stringContaining(saidByBuild) });
  });

  it("works without zod by its entry `cinnabar/standard`, as its command does", () => {
    const plain = join(folder, "plain");
    mkdirSync(join(plain, "node_modules"), { recursive: true });
    cpSync(installed, join(plain, "node_modules/cinnabar"), { recursive: true });
    symlinkSync(join(root, "node_modules/@standard-schema"), join(plain, "node_modules/@standard-schema"));
    writeFileSync(join(plain, "package.json"), '{ "name": "plain" }');
    writeFileSync(
      join(plain, "echo.mjs"),
      `
        import { bytes, Engine, fields, implement, service, unary } from "cinnabar/standard";
        const input = fields({ bytes: bytes({ maxBytes: 3 }) });
        const Echo = service("echo.v1", { echo: unary({ input, output: input }) });
        const server = await Engine.open({ listen: "mem://echo", serve: [implement(Echo, { echo: (it) => it })] });
        const engine = await Engine.open();
        const { echo } = (await engine.connect("mem://echo")).client(Echo);
        console.log(await echo({ bytes: Uint8Array.of(1, 2) }));
        console.log(await echo({ bytes: new Uint8Array(4) }).catch(({ message }) => message));
        console.log(await import("cinnabar").catch(({ message }) => message.slice(0, 25)));
        await engine.close();
        await server.close();
      `,
    );
    const { stdout, stderr } = run(plain, process.execPath, "echo.mjs");
    expect(stdout, stderr).toBe(
      [
        "{ bytes: Uint8Array(2) [ 1, 2 ] }",
        "[invalid_argument] input.bytes: has 4 bytes; the limit is 3",
        "Cannot find package 'zod'",
        "",
      ].join("\n"),
    );
    const command = join(plain, "node_modules/cinnabar/dist/cli/bin/cinnabar.js");
    expect(run(plain, process.execPath, command, "info", "--json").status).toBe(0);

    // Its declarations are complete with Node's types, which no option names.
    for (const name of ["@types", "undici-types"])
      symlinkSync(join(root, "node_modules", name), join(plain, "node_modules", name));
    const options = { module: "nodenext", target: "esnext", strict: true, noEmit: true, types: [] };
    writeFileSync(
      join(plain, "tsconfig.json"),
      JSON.stringify({ compilerOptions: options, files: ["a.mts"] }),
    );
    writeFileSync(
      join(plain, "a.mts"),
      `
        import { bulk, fields, service, unary, type Engine } from "cinnabar/standard";
        import type { connected } from "cinnabar/testing";
        export const Sums = service("sums.v1", { sum: unary({ input: fields({ numbers: bulk("read") }) }) });
        export type Used = [Engine, typeof connected];
      `,
    );
    const checked = run(plain, process.execPath, join(root, "node_modules/typescript-7/bin/tsc"));
    expect(checked).toMatchObject({ status: 0, stdout: "" });
  });

  it.each([
    ["as rolldown makes it", {}],
    // esbuild has nothing in the place of import.meta.
    ["whose import.meta is empty", { "import.meta.url": "undefined" }],
  ])(
    "loads from a bundle of CommonJS %s, and looks for the addon where it is installed",
    async (_, define) => {
      // CommonJS has no await outside of functions.
      const body = program.replace(
        /const Hello[\s\S]*/,
        (code) => `async function main() { ${code} }\n main();`,
      );
      writeFileSync(join(user, "bundled.mjs"), body);
      const bundle = await rolldown({
        input: join(user, "bundled.mjs"),
        platform: "node",
        transform: { define },
        treeshake: { moduleSideEffects: true },
        logLevel: "silent",
      });
      await bundle.write({ file: join(user, "bundle.cjs"), format: "cjs", codeSplitting: false });
      await bundle.close();
      const { stdout, stderr } = run(user, process.execPath, "bundle.cjs");
      expect(stdout, stderr).toMatch(/^hello\n/);
      expect(stdout).toContain(`${installed}/native/build/Release/cinnabar.node`);
    },
  );
});
