import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { picture } from "../../bench/report/picture.ts";
import { pictureFiles } from "../../bench/report/write-pictures.ts";
import { resultsWith } from "../bench/support/samples.ts";
import { root } from "./pages.test-support.ts";

describe("the pictures and tables of README and guide", () => {
  for (const [file, text] of pictureFiles(root)) {
    it(`are drawn from the newest release: ${file} (else run "npm run bench -- --figures")`, () => {
      expect(readFileSync(root + file, "utf8")).toBe(text);
    });
  }

  it("name the figure that the results lack", () => {
    expect(() => picture(resultsWith([]), "light")).toThrow("The results lack the figure shm.small.1.p50_us");
  });
});
