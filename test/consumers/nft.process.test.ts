import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, expect, it } from "vitest";
import { greetings, installed, laneGreeting, Project, runNode } from "./support/project.ts";

const project = new Project("nft");
const image = mkdtempSync(join(tmpdir(), "cinnabar-image-"));
afterAll(() => {
  project.remove();
  rmSync(image, { recursive: true, force: true });
});

it("@vercel/nft finds every file of a program, lanes and the addon too: their copy runs elsewhere", () => {
  project.copy("hello.mjs");
  project.copy("lane.mjs");
  project.write(
    "program.mjs",
    'import "./hello.mjs";\nexport const lane = new URL("./lane.mjs", import.meta.url);\n',
  );
  project.write(
    "trace.mjs",
    `import { nodeFileTrace } from "@vercel/nft";
    const base = ${JSON.stringify(dirname(dirname(dirname(installed))))};
    const { fileList, warnings } = await nodeFileTrace(["program.mjs"], { base, processCwd: process.cwd() });
    console.log(JSON.stringify({ base, files: [...fileList], warnings: [...warnings].map(String) }));`,
  );
  const traced = project.node(["trace.mjs"]);
  expect(traced.status, traced.stderr).toBe(0);
  const { base, files } = JSON.parse(traced.stdout) as { base: string; files: string[] };
  for (const file of files) {
    mkdirSync(dirname(join(image, file)), { recursive: true });
    cpSync(join(base, file), join(image, file), { dereference: true });
  }
  const names = files.map((file) => file.replace(/.*node_modules\//, ""));
  expect(names).toContain("cinnabar-lanes/dist/lane-worker.js");
  const native = `native/linux-${process.arch}-glibc`;
  for (const file of readdirSync(join(installed, native)).filter((name) => !name.startsWith("libverbs")))
    expect(names).toContain(`cinnabar/${native}/${file}`);
  // Not everything: the image carries what runs.
  expect(names.filter((name) => /^(webpack|jest|typescript)/.test(name))).toEqual([]);
  const folder = join(image, project.folder.slice(base.length));
  const { stdout, stderr } = runNode(["program.mjs", join(folder, "lane.mjs")], { cwd: folder });
  expect(stdout, stderr).toBe(greetings + laneGreeting);
});
