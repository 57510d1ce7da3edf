import { Application } from "typedoc";
import { root, source } from "./paths.mjs";

/** Writes a page for each export of the packages into the folder `api` of the site. */
export async function makeReference() {
  await writeReference(
    [
      `${root}src/index.ts`,
      `${root}src/inspect.ts`,
      `${root}src/options.ts`,
      `${root}src/native.ts`,
      `${root}src/testing.ts`,
    ],
    "api",
    "API reference",
  );
  await writeReference([`${root}packages/bulk/src/index.ts`], "api/bulk", "cinnabar-bulk");
  await writeReference([`${root}packages/group/src/index.ts`], "api/group", "cinnabar-group");
  await writeReference(
    [
      `${root}packages/http/src/index.ts`,
      `${root}packages/http/src/client.ts`,
      `${root}packages/http/src/proto.ts`,
      `${root}packages/http/src/upload.ts`,
    ],
    "api/http",
    "cinnabar-http",
  );
  await writeReference([`${root}packages/inspect/src/index.ts`], "api/inspect-package", "cinnabar-inspect");
  await writeReference([`${root}packages/lanes/src/index.ts`], "api/lanes", "cinnabar-lanes");
  await writeReference([`${root}packages/nest/src/index.ts`], "api/nest", "cinnabar-nest");
  await writeReference([`${root}packages/nvme/src/index.ts`], "api/nvme", "cinnabar-nvme");
  await writeReference(
    [`${root}packages/nvme/src/rdma/queue-pairs.ts`],
    "api/queue-pairs",
    "cinnabar-nvme/queue-pairs",
  );
  await writeReference([`${root}packages/otel/src/index.ts`], "api/otel", "cinnabar-otel");
  await writeReference([`${root}packages/serve/src/index.ts`], "api/serve", "cinnabar-serve");
}

/**
 * @param {readonly string[]} entryPoints
 * @param {string} folder of the site; what was in it goes
 * @param {string} name the heading of its first page
 */
async function writeReference(entryPoints, folder, name) {
  const app = await Application.bootstrapWithPlugins({
    entryPoints,
    tsconfig: `${root}tsconfig.json`,
    plugin: ["typedoc-plugin-markdown"],
    outputs: [{ name: "markdown", path: source + folder }],
    name,
    readme: "none",
    excludeInternal: true,
    excludePrivate: true,
    disableSources: true,
    githubPages: false,
    logLevel: "Warn",
    treatWarningsAsErrors: true,
    // Tests check types, and that each type that is mentioned is exported (test/package).
    validation: { notExported: false, invalidLink: true, invalidPath: true, rewrittenLink: true },
    skipErrorChecking: true,
    entryFileName: "index",
    hideBreadcrumbs: true,
    hidePageHeader: true,
    useCodeBlocks: true,
    sanitizeComments: true,
    parametersFormat: "table",
    interfacePropertiesFormat: "table",
    typeDeclarationFormat: "table",
    tableColumnSettings: { hideModifiers: true, hideInherited: true, hideOverrides: true, hideSources: true },
  });
  const project = await app.convert();
  if (project === undefined) throw new Error("TypeDoc cannot read the sources");
  app.validate(project);
  if (app.logger.hasErrors() || app.logger.hasWarnings()) throw new Error("TypeDoc complains of the sources");
  await app.generateOutputs(project);
}
