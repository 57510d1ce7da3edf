import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeEach, describe, expect, it } from "vitest";
import { cinnabar } from "./support/command-line.ts";

const base = mkdtempSync(join(tmpdir(), "cinnabar-proto-"));
let folder: string;
let folders = 0;

beforeEach(() => {
  folder = join(base, String(folders++));
  mkdirSync(folder);
});

afterAll(() => rmSync(base, { recursive: true }));

const root = new URL("../../../", import.meta.url).pathname;

/** Writes a contract of these services. They import the packages of this checkout. */
function contract(services: string, name = "contract.mjs"): void {
  writeFileSync(
    join(folder, name),
    `import { service, unary } from ${JSON.stringify(`${root}dist/contract.js`)};
    import { z } from ${JSON.stringify(`${root}node_modules/zod/index.js`)};
    ${services}`,
  );
}

const work = (input: string) =>
  `export const Work = service("work.v1", { go: unary({ input: z.object(${input}) }), stop: unary() });`;
const proto = (...args: string[]) => cinnabar(["proto", ...args], { cwd: folder });
const write = (...args: string[]) => proto("contract.mjs", "--out", "work.proto", ...args);
const read = (name: string) => readFileSync(join(folder, name), "utf8");

describe("cinnabar proto", () => {
  it("writes a contract and its numbers, writes nothing the second time, and keeps numbers of a change", async () => {
    contract(work("{ a: z.string(), b: z.bigint() }"));
    expect(await write("--safe", "go")).toEqual({
      status: 0,
      stdout: "work.proto.lock.json\nwork.proto\n",
      stderr: "",
    });
    expect(read("work.proto")).toContain("option idempotency_level = NO_SIDE_EFFECTS;");
    expect(read("work.proto")).toContain("optional int64 b = 2;");
    expect(JSON.parse(read("work.proto.lock.json"))).toMatchObject({
      service: "work.v1",
      types: { V1GoRequest: { a: { number: 1, type: "string" }, b: { number: 2, type: "int64" } } },
    });
    expect(await write("--safe", "go")).toEqual({ status: 0, stdout: "", stderr: "" });
    contract(work("{ c: z.string(), b: z.bigint() }"));
    expect(await write("--method", "go")).toMatchObject({ status: 0, stderr: "" });
    expect(read("work.proto")).toContain(
      'reserved 1;\n  reserved "a";\n  optional string c = 3;\n  optional int64 b = 2;',
    );
    expect(read("work.proto")).not.toContain("stop");
  });

  it("checks with --check, and writes nothing then", async () => {
    contract(work("{ a: z.string() }"));
    const complaint = (file: string) =>
      `cinnabar proto: ${file} does not fit contract.mjs; run this command without --check\n`;
    const both = {
      status: 1,
      stdout: "",
      stderr: complaint("work.proto.lock.json") + complaint("work.proto"),
    };
    expect(await write("--check")).toEqual(both);
    await write("--lock", "numbers.json");
    expect(await write("--check", "--lock", "numbers.json")).toEqual({ status: 0, stdout: "", stderr: "" });
    // Formatted by another tool.
    writeFileSync(join(folder, "numbers.json"), JSON.stringify(JSON.parse(read("numbers.json"))));
    expect(await write("--check", "--lock", "numbers.json")).toMatchObject({ status: 0 });
    const [before, numbers] = [read("work.proto"), read("numbers.json")];
    expect(await write("--check", "--lock", "numbers.json", "--safe", "go")).toEqual({
      ...{ status: 1, stdout: "" },
      stderr: complaint("work.proto"),
    });
    contract(work("{ a: z.string(), b: z.string() }"));
    expect(await write("--check", "--lock", "numbers.json")).toMatchObject({ status: 1 });
    expect([read("work.proto"), read("numbers.json")]).toEqual([before, numbers]);
  });

  it("names the file and the path of each field without a form, and leaves the files as they are", async () => {
    contract(work("{ a: z.string() }"));
    await write();
    const before = read("work.proto");
    contract(work("{ a: z.number(), who: z.object({ name: z.string().nullable() }) }"));
    expect(await write()).toEqual({
      ...{ status: 1, stdout: "" },
      stderr: [
        "cinnabar proto: contract.mjs: work.v1/go: input.a: its type is double, and string in the lock file; give the field a new name",
        "cinnabar proto: contract.mjs: work.v1/go: input.who.name: null has no form in Protobuf; write .optional()\n",
      ].join("\n"),
    });
    expect(read("work.proto")).toBe(before);
  });

  it("does not number fields anew where the lock file is lost or broken", async () => {
    contract(work("{ a: z.string() }"));
    await write();
    for (const broken of ["<<<<<<< HEAD", "", "null", "1", '"work.v1"', "[]"]) {
      writeFileSync(join(folder, "work.proto.lock.json"), broken);
      expect(await write(), broken).toEqual({
        ...{ status: 1, stdout: "" },
        stderr: "cinnabar proto: work.proto.lock.json is no lock file: restore it, or resolve its conflict\n",
      });
    }
    rmSync(join(folder, "work.proto.lock.json"));
    expect(await write()).toEqual({
      ...{ status: 1, stdout: "" },
      stderr:
        "cinnabar proto: work.proto exists without its lock file work.proto.lock.json: restore that, or remove work.proto to number all fields anew\n",
    });
  });

  it("leaves the unfinished file of another run as it is", async () => {
    contract(work("{ a: z.string() }"));
    writeFileSync(join(folder, "work.proto.part"), "another run");
    expect(await write()).toMatchObject({ status: 0, stderr: "" });
    expect(read("work.proto.part")).toBe("another run");
    expect(readdirSync(folder).sort()).toEqual(
      ["contract.mjs", "work.proto", "work.proto.lock.json", "work.proto.part"].sort(),
    );
  });

  it("takes one service of several, and names what is wrong with its arguments", async () => {
    contract(
      `export const A = service("a.v1", { go: unary() }); export const B = service("b.v1", { go: unary() });
      export const Again = A;`,
    );
    expect(await write()).toMatchObject({
      status: 2,
      stderr: expect.stringContaining("contract.mjs exports a.v1, b.v1: name one by --service"),
    });
    expect(await write("--service", "b.v1")).toMatchObject({ status: 0 });
    expect(read("work.proto")).toContain("package b;");
    const wrong: readonly (readonly [readonly string[], number, string])[] = [
      [["contract.mjs", "--out", "w.proto", "--service", "c"], 2, 'has no service "c", it has a.v1, b.v1'],
      [
        ["contract.mjs", "--out", "w.proto", "--service", "a.v1", "--safe", "no"],
        2,
        'a.v1 has no method "no"',
      ],
      [["contract.mjs"], 2, "--out names the file to write"],
      [["--out", "w.proto"], 2, "expected one file"],
      [["contract.mjs", "--out", "w.proto", "--lock", "./w.proto"], 2, "--out and --lock name the same file"],
      [["none.mjs", "--out", "w.proto"], 1, "cinnabar proto: none.mjs cannot be loaded"],
      [["contract.mjs", "--out", "no/w.proto", "--service", "a.v1"], 1, "cinnabar proto: --lock: ENOENT"],
    ];
    for (const [args, status, why] of wrong)
      expect(await proto(...args), why).toMatchObject({ status, stderr: expect.stringContaining(why) });
  });
});
