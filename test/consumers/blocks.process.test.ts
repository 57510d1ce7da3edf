import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { blocksOf, modulesOf, userPages } from "../docs/pages.test-support.ts";
import { compiled, outputsOf, PagePrograms } from "../docs/programs.test-support.ts";
import { Project, tool } from "./support/project.ts";

const project = new Project("blocks");
const programs = new PagePrograms(project.path("programs"));

/** A block of README and guide, as JavaScript. */
interface Script {
  readonly page: string;
  readonly name: string;
  readonly text: string;
}

/** Every block of TypeScript, compiled, and every block of JavaScript. */
function scripts(): Script[] {
  return userPages.flatMap((page) => [
    ...modulesOf(page).map((module) => ({
      page,
      name: module.name.replace(/\.ts$/, ".js"),
      text: compiled(module),
    })),
    ...blocksOf(page)
      .filter(({ language, text }) => language === "js" && !text.startsWith("// "))
      .map(({ line, text }) => ({ page, name: `line-${line}.js`, text })),
  ]);
}

beforeAll(() => {
  for (const page of userPages) programs.write(page);
  project.write("scripts.json", JSON.stringify(scripts()));
  project.copy("link-blocks.mjs");
});
afterEach(() => programs.endAll());
afterAll(() => project.remove());

describe.each(["20", "22", "24"])("README and guide on Node %s", (version) => {
  const node = tool(`node-${version}`, "bin/node");

  it("every block of TypeScript and JavaScript is parsed, and finds what it imports", () => {
    const { status, stdout, stderr } = project.node(["--experimental-vm-modules", "link-blocks.mjs"], {
      node,
    });
    expect(stderr).toBe("");
    expect(stdout).toBe(`${scripts().length} blocks\n`);
    expect(status).toBe(0);
  });

  it.each(userPages.filter((page) => outputsOf(page).length > 0))(
    "the programs of %s print what it says",
    (page) => programs.expectOutputs(page, node),
  );
});
