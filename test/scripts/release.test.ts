import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { notesOf } from "../../scripts/release/notes.mjs";

const root = fileURLToPath(new URL("../..", import.meta.url));
const changelog =
  "# Changelog\n\n## 0.2.0 (2027-01-02)\n\n### Calls\n\n- Second.\n\n## 0.1.0\n\n- First.\n\n## 0.0.1\n";

it("the notes of a release are its section of the changelog, and no other", () => {
  expect(notesOf(changelog, "0.2.0")).toBe("### Calls\n\n- Second.");
  expect(notesOf(changelog, "0.1.0")).toBe("- First.");
  expect(notesOf(changelog, "0.1")).toBe(undefined);
  expect(notesOf(changelog, "0.0.1")).toBe(undefined);
});

it("the changelog has notes for the version of the package", () => {
  const { version } = JSON.parse(readFileSync(`${root}package.json`, "utf8"));
  expect(notesOf(readFileSync(`${root}CHANGELOG.md`, "utf8"), version)).toContain("###");
});
