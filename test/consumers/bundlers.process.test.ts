import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { bundlers, outputOf } from "./support/bundlers.ts";
import { folder, greetings, laneGreeting, Project, runNode } from "./support/project.ts";

describe.each(bundlers)("$name", ({ name, bundle }) => {
  const project = new Project(name.replace(/\W/g, "-").toLowerCase());
  project.copy("hello.mjs");
  project.copy("lacking.mjs");
  project.copy("lane.mjs");
  const alone = mkdtempSync(join(tmpdir(), "cinnabar-alone-"));
  afterAll(() => {
    project.remove();
    rmSync(alone, { recursive: true, force: true });
  });

  it.each([
    ["beside cinnabar, as a module", { format: "esm", external: true }],
    ["beside cinnabar, as CommonJS", { format: "cjs", external: true }],
    ["with cinnabar in it, as a module", { format: "esm", external: false }],
    ["with cinnabar in it, as CommonJS", { format: "cjs", external: false }],
  ] as const)("makes a program %s, that calls over mem and tcp, and has lanes", (_, options) => {
    rmSync(project.path("out"), { recursive: true, force: true });
    project.write("program.mjs", 'import "./hello.mjs";\n');
    const { status, stdout, stderr } = bundle(project, options);
    expect({ status, stderr }, stdout + stderr).toEqual({ status: 0, stderr: "" });
    const path = join("out", outputOf(options));
    const isInside = readFileSync(project.path(path), "utf8").includes("native addon was not found");
    expect(isInside).toBe(!options.external);
    const ran = project.node([path, project.path("lane.mjs")]);
    expect(ran.stdout, ran.stderr).toBe(greetings + laneGreeting);
    expect(ran.status).toBe(0);
  });

  it.each(["esm", "cjs"] as const)(
    "makes a bundle (%s) that says what it lacks where nothing is installed",
    (format) => {
      rmSync(project.path("out"), { recursive: true, force: true });
      project.write("program.mjs", 'import "./lacking.mjs";\n');
      const options = { format, external: false };
      expect(bundle(project, options).status).toBe(0);
      // webpack writes down where files were on the machine that made the bundle; another machine does not have them.
      const text = readFileSync(project.path("out", outputOf(options)), "utf8").replaceAll(
        folder,
        "/nowhere",
      );
      writeFileSync(join(alone, outputOf(options)), text);
      cpSync(project.path("package.json"), join(alone, "package.json"));
      const { stdout, stderr } = runNode([outputOf(options)], { cwd: alone });
      const [greeting, noAddon, noLanes, ...rest] = stdout.split("\n");
      expect(greeting, stderr).toBe("hello");
      expect(noAddon).toContain("cinnabar's native addon was not found; tried");
      expect(noLanes).toContain("openLanes: the file of the worker threads was not found; tried");
      expect(noLanes).toContain("mark cinnabar-lanes as external in the bundler");
      expect(rest).toEqual([""]);
    },
  );
});
