import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import { Project, root, tool } from "./support/project.ts";

const project = new Project("deploy-files");
project.copy("deploy-files.mjs");
const compilerOptions = { module: "nodenext", strict: true, skipLibCheck: true, noEmit: true, types: [] };
project.write("tsconfig.json", JSON.stringify({ compilerOptions, files: ["manifests.ts"] }));
afterAll(() => project.remove());

/** What the published schemas find wrong in these files. */
function faults(compose: string, manifests: string): string[] {
  project.write("compose.yaml", compose);
  project.write("kubernetes.yaml", manifests);
  const checked = project.node(["deploy-files.mjs", "compose.yaml", "kubernetes.yaml", "manifests.ts"]);
  expect(checked.status, checked.stderr).toBe(0);
  const { stdout } = project.node([tool("typescript-7", "bin/tsc")]);
  return [...checked.stdout.split("\n"), ...stdout.split("\n")].filter((line) => line !== "");
}

const read = (path: string) => readFileSync(join(root, "examples", path), "utf8");
const compose = read("backend/compose.yaml");

it.each(["backend/kubernetes.yaml", "deploy/kubernetes.yaml"])(
  "fit the schemas of Compose and Kubernetes: compose.yaml and %s",
  (manifests) => {
    expect(faults(compose, read(manifests))).toEqual([]);
  },
);

it("would not fit with a field that is misspelt or of another type", () => {
  const manifests = read("backend/kubernetes.yaml");
  const wrong = faults(
    compose.replace("depends_on:", "depend_on:"),
    manifests.replace("enableServiceLinks:", "enableServiceLink:").replace("replicas: 2", "replicas: two"),
  );
  expect(wrong).toEqual([
    expect.stringContaining('{"additionalProperty":"depend_on"}'),
    expect.stringMatching(/TS2322.*'string'.*'number'|TS2353.*enableServiceLink/),
    expect.stringMatching(/TS2322.*'string'.*'number'|TS2353.*enableServiceLink/),
  ]);
});
