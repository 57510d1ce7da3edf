// @ts-nocheck: its packages are those of build/consumers.
// Prints what is wrong with a compose file by the schema of the Compose Specification, and writes manifests of
// Kubernetes as TypeScript, whose types come from the published schemas of Kubernetes.
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { Ajv } from "ajv";
import { parse, parseAllDocuments } from "yaml";

const [compose, manifests, target] = process.argv.slice(2);
const dclint = dirname(createRequire(import.meta.url).resolve("dclint/package.json"));
// Ajv does not know the draft that it names.
const { $schema: _, ...schema } = JSON.parse(
  readFileSync(join(dclint, "schemas/compose.schema.json"), "utf8"),
);
const fits = new Ajv({ strict: false, allErrors: true, validateFormats: false }).compile(schema);
if (!fits(parse(readFileSync(compose, "utf8"), { merge: true })))
  for (const { instancePath, message, params } of fits.errors)
    console.log(`${instancePath} ${message} ${JSON.stringify(params)}`);
const lines = parseAllDocuments(readFileSync(manifests, "utf8")).flatMap((document, index) => {
  const manifest = document.toJS();
  return [
    `import type { I${manifest.kind} as T${index} } from "kubernetes-models/${manifest.apiVersion}";`,
    `export const m${index}: T${index} = ${JSON.stringify(manifest, undefined, 2)};`,
  ];
});
writeFileSync(target, lines.join("\n"));
