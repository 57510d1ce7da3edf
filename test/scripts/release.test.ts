import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, it } from "vitest";
import { faultsOfCheckout } from "../../scripts/release/checks.mjs";
import { dated, dateOf, notesOf } from "../../scripts/release/notes.mjs";
import { howToPublish } from "../../scripts/release/publish.mjs";
import { versionedFiles, versionsIn, withVersion } from "../../scripts/release/versions.mjs";

const root = fileURLToPath(new URL("../..", import.meta.url));
const read = (file: string) => readFileSync(join(root, file), "utf8");
const manifest = JSON.parse(read("package.json"));
const version: string = manifest.version;
const changelog =
  "# Changelog\n\n## 0.2.0 (2027-01-02)\n\n### Calls\n\n- Second.\n\n## 0.1.0\n\n- First.\n\n## 0.0.1\n";

describe("the notes of a release", () => {
  it("are its section of the changelog, and no other", () => {
    expect(notesOf(changelog, "0.2.0")).toBe("### Calls\n\n- Second.");
    expect(notesOf(changelog, "0.1.0")).toBe("- First.");
    expect(notesOf(changelog, "0.1")).toBe(undefined);
    expect(notesOf(changelog, "0.0.1")).toBe(undefined);
  });

  it("have the date of the heading", () => {
    expect(dateOf(changelog, "0.2.0")).toBe("2027-01-02");
    expect(dateOf(changelog, "0.1.0")).toBe(undefined);
  });

  it("get their date when the release is prepared, unless they are of a release that was made", () => {
    const open = "# Changelog\n\n## 0.2.0 (unreleased)\n\n- Second.\n\n## 0.1.0 (2027-01-02)\n\n- First.\n";
    const expected = "## 0.2.0 (2027-02-03)\n\n- Second.\n\n## 0.1.0 (2027-01-02)";
    expect(dated(open, "0.2.0", "2027-02-03")).toContain(expected);
    const unnamed = open.replace("0.2.0 (unreleased)", "Unreleased");
    expect(dated(unnamed, "0.2.0", "2027-02-03")).toContain(expected);
    expect(dated(changelog, "0.3.0", "2027-02-03")).toBe(undefined);
  });

  it("are there for the version of the package", () => {
    expect(notesOf(read("CHANGELOG.md"), version)).toContain("###");
  });
});

describe("the version", () => {
  it("is looked for in every package of packages/", () => {
    expect(versionedFiles).toContain("packages/group/package.json");
    expect(versionedFiles).toContain("packages/cli/package.json");
    expect(versionedFiles).toContain("packages/otel/package.json");
  });

  it.each(versionedFiles)("stands in %s, and can be changed there without another change", (file) => {
    const text = read(file);
    const found = versionsIn(file, text);
    expect(found.length).toBeGreaterThan(0);
    expect([...new Set(found)]).toEqual([version]);
    const changed = withVersion(file, text, "9.8.7-beta.1");
    expect([...new Set(versionsIn(file, changed))]).toEqual(["9.8.7-beta.1"]);
    expect(withVersion(file, changed, version)).toBe(text);
  });
});

describe("a checkout", () => {
  const good = {
    version,
    changelog: `## ${version} (2027-01-02)\n\n- First.\n`,
    versioned: Object.fromEntries(versionedFiles.map((file) => [file, read(file)])),
    changes: "",
    tags: ["v0.0.1"],
  };
  const release = { isRehearsal: false };

  it("can be released with notes, a date, one version and no changes", () => {
    expect(faultsOfCheckout(good, release)).toEqual([]);
  });

  it.each([
    ["with changes", { changes: " M src/index.ts\n" }, "has changes that are not committed"],
    ["without notes", { changelog: "## 0.0.1 (2027-01-02)\n\n- First.\n" }, `nothing of ${version}`],
    ["without a date", { changelog: `## ${version} (unreleased)\n\n- First.\n` }, "--prepare"],
    ["with a tag", { tags: [`v${version}`] }, `The tag v${version} is there already`],
    [
      "with two versions",
      { versioned: { "bench/package.json": '{ "version": "9.9.9" }' } },
      `bench/package.json names version 9.9.9, and package.json is ${version}`,
    ],
  ])("cannot be released %s", (_, change, expected) => {
    const faults = faultsOfCheckout({ ...good, ...change }, release);
    expect(faults).toHaveLength(1);
    expect(faults[0]).toContain(expected);
  });

  it("may lack a date where the release is rehearsed, and may not have changes", () => {
    const undated = { ...good, changelog: `## ${version} (unreleased)\n\n- First.\n` };
    expect(faultsOfCheckout(undated, { isRehearsal: true })).toEqual([]);
    expect(faultsOfCheckout({ ...undated, changes: "?? a" }, { isRehearsal: true })).toHaveLength(1);
  });
});

describe("npm run release", () => {
  const folder = mkdtempSync(join(tmpdir(), "cinnabar-release-"));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  const run = (command: string, ...args: string[]) => {
    const { status, stdout, stderr } = spawnSync(command, args, { cwd: folder, encoding: "utf8" });
    return { status, said: stdout + stderr };
  };
  const release = (...args: string[]) => run(process.execPath, "scripts/release.mjs", ...args);

  it("refuses a checkout with changes before it builds anything, and sets the version that it is told", () => {
    for (const file of ["scripts", "CHANGELOG.md", ...versionedFiles]) {
      mkdirSync(dirname(join(folder, file)), { recursive: true });
      cpSync(join(root, file), join(folder, file), { recursive: true });
    }
    writeFileSync(join(folder, "CHANGELOG.md"), "# Changelog\n\n## Unreleased\n\n- First.\n");
    run("git", "init", "--quiet");
    run("git", "add", ".");
    run("git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "first");

    const wrong = release("--prepare", "next");
    expect(wrong.status).toBe(1);
    expect(wrong.said).toContain("a version is three numbers");

    const prepared = release("--prepare", "9.8.7");
    expect(prepared, prepared.said).toMatchObject({ status: 0 });
    for (const file of [...versionedFiles, "CHANGELOG.md"]) expect(prepared.said).toContain(file);
    expect(readFileSync(join(folder, "CHANGELOG.md"), "utf8")).toMatch(/^## 9\.8\.7 \(\d{4}-\d\d-\d\d\)$/m);
    for (const file of versionedFiles)
      expect(versionsIn(file, readFileSync(join(folder, file), "utf8"))).toContain("9.8.7");

    writeFileSync(join(folder, ".git/notes.md"), "### Calls\n\n- First.\n");
    const commit = run("git", "rev-parse", "HEAD").said.trim();
    const files = ["cinnabar-9.8.7.tgz", "cinnabar-group-9.8.7.tgz"];
    const text = howToPublish({ version: "9.8.7", files, notesFile: ".git/notes.md", commit });
    const published = [...text.matchAll(/^ +npm publish (\S+) --access public$/gm)].map(([, file]) => file);
    expect(published).toEqual(files.map((file) => `./dist-packages/${file}`));
    const tag = /git tag .*(?= && git push)/.exec(text)?.[0] ?? "";
    expect(run("sh", "-c", tag.replace("git", "git -c user.name=a -c user.email=a@b"))).toEqual({
      status: 0,
      said: "",
    });
    expect(run("git", "cat-file", "tag", "v9.8.7").said).toContain("\n### Calls\n\n- First.\n");

    // The versions are not committed yet.
    const { status, said } = release();
    expect(status).toBe(1);
    expect(said).toContain("has changes that are not committed");
    expect(said).not.toContain("npm publish");
    expect(release("--prepare", "9.8.8").said).toContain("of a release that has been made");
  });
});

/** Names that stand for nobody: RFC 2606, and what people write until they know better. */
const leadsNowhere =
  /\bexample\.(?:com|org|net)\b|\.(?:example|invalid|test)\b|\bOWNER\b|\byour-?(?:org|name)\b/i;

it("package.json has no address but that of a repository, of which npm makes the others", () => {
  expect(manifest).not.toHaveProperty("homepage");
  expect(manifest).not.toHaveProperty("bugs");
  expect(JSON.stringify(manifest.repository) ?? "").not.toMatch(leadsNowhere);
});
