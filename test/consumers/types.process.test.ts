import { readFileSync, rmSync } from "node:fs";
import { basename } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { installed, otherTarballs, Project, tarball, tool } from "./support/project.ts";

const project = new Project("types");
afterAll(() => project.remove());

const entries = [
  ...[
    ".",
    "./standard",
    "./contract",
    "./contract/standard",
    "./inspect",
    "./options",
    "./testing",
    "./native",
  ],
  "./package.json",
];
/** Beside the main entry of a package. */
const ownEntries: Readonly<Record<string, readonly string[]>> = {
  "cinnabar-bulk": ["./standard", "./contract", "./contract/standard"],
  "cinnabar-group": ["./variables"],
  "cinnabar-http": ["./client", "./client/upload", "./json", "./proto"],
  "cinnabar-nvme": ["./queue-pairs"],
};

const packages = [
  { name: "cinnabar", archive: tarball, entries },
  ...otherTarballs.map((archive) => {
    const name = basename(archive).replace(/-\d.*/, "");
    return { name, archive, entries: [".", ...(ownEntries[name] ?? []), "./package.json"] };
  }),
];

describe.each(packages)("the tarball of $name", ({ name, archive, entries }) => {
  it("has nothing that publint finds wrong, suggestions too", () => {
    project.write(
      "publint.mjs",
      `import { publint } from "publint";
      import { formatMessage } from "publint/utils";
      const { messages, pkg } = await publint({ pkgDir: ${JSON.stringify(tool(name, ""))}, strict: true, pack: false });
      for (const message of messages) console.log(formatMessage(message, pkg, { color: false }));`,
    );
    expect(project.node(["publint.mjs"])).toEqual({ status: 0, stdout: "", stderr: "" });
  });

  it("resolves by every entry, for ES modules and bundlers, as attw sees it", () => {
    project.write(
      "attw.mjs",
      `import { checkPackage, createPackageFromTarballData } from "@arethetypeswrong/core";
      import { readFileSync } from "node:fs";
      const tarball = createPackageFromTarballData(readFileSync(${JSON.stringify(archive)}));
      const { entrypoints, problems } = await checkPackage(tarball);
      console.log(JSON.stringify({ entrypoints: Object.keys(entrypoints), problems }));`,
    );
    const { stdout, stderr } = project.node(["attw.mjs"]);
    expect(stderr).toBe("");
    const found = JSON.parse(stdout) as {
      entrypoints: string[];
      problems: { kind: string; resolutionKind?: string }[];
    };
    expect(found.entrypoints).toEqual(entries);
    // The package is of ES modules: CommonJS of TypeScript before nodenext must import() them, and the resolution of
    // Node 10 knows no exports.
    const accepted = found.problems.filter(
      ({ kind, resolutionKind }) => kind === "CJSResolvesToESM" || resolutionKind === "node10",
    );
    expect(found.problems.filter((problem) => !accepted.includes(problem))).toEqual([]);
  });
});

const program = `
  import { bulk, Engine, implement, isError, service, unary, type CallContext, type Transfer } from "cinnabar";
  import * as standard from "cinnabar/standard";
  import { openLanes, type LaneModule } from "cinnabar-lanes";
  import { z } from "zod";

  export const Files = service("files.v1", {
    stat: unary({ input: z.object({ path: z.string() }), output: z.int(), errors: { NotFound: z.string() } }),
    load: unary({ input: z.object({ into: bulk("write") }), output: z.int() }),
  });
  export const files = implement(Files, {
    stat: ({ path }, call) => (path === "" ? call.fail("NotFound", path) : path.length),
    load: ({ into }, call) => call.put(new Uint8Array(into.byteLength), into),
  });
  export async function main() {
    await using engine = await Engine.open({ listen: "mem://files", serve: [files] });
    const client = (await engine.connect("mem://files")).client(Files);
    const bytes: number = await client.stat({ path: "a" });
    // @ts-expect-error a number is no path
    client.stat({ path: bytes }).catch((error) => isError(error, Files, "stat", "NotFound"));
    return [openLanes, standard.fields, bytes];
  }
  export type Used = [CallContext, Transfer, LaneModule];
`;

const contract = `
  import { RpcError, bytes, isError, metadataKey, serverStream, service, unary, type InputOf } from "cinnabar/contract";
  import { fields } from "cinnabar/contract/standard";
  import { z } from "zod";
  export const Orders = service("orders.v1", {
    place: unary({ input: z.object({ pieces: z.int(), scan: bytes() }), errors: { SoldOut: z.string() } }),
    watch: serverStream({ output: fields({ id: z.string() }) }),
  });
  export const tenant = metadataKey("x-tenant", z.string());
  export const isSoldOut = (error: unknown) => error instanceof RpcError && isError(error, Orders, "place", "SoldOut");
  export type Input = InputOf<typeof Orders.methods.place>;
  // @ts-expect-error there is no Node here
  export type Absent = NodeJS.Timeout;
`;

const plainContract = `
  import { fields, RpcError, service, unary, type Schema } from "cinnabar/contract/standard";
  declare const text: Schema<string>;
  export const Notes = service("notes.v1", { add: unary({ input: fields({ text }), errors: { Full: text } }) });
  export const isNotFound = (error: unknown) => error instanceof RpcError && error.code === "not_found";
  // @ts-expect-error there is no platform here
  export type Absent = URL;
`;

const members = `
  import { Engine } from "cinnabar";
  import { FailureDetector, joinGroup, staticAuthority, type Group, type MemberLink } from "cinnabar-group";
  export async function main(): Promise<MemberLink> {
    await using engine = await Engine.open({ listen: "mem://member" });
    const group: Group = await joinGroup("g", { engine, authority: staticAuthority([{ urls: engine.urls }]) });
    // @ts-expect-error a rank is a number
    group.at("0");
    return group.at(0);
  }
  export type Options = Parameters<typeof FailureDetector.open>[0];
`;

const telemetry = `
  import { Engine } from "cinnabar";
  import { EngineMetrics, tracing } from "cinnabar-otel";
  import { MeterProvider, type MetricProducer } from "@opentelemetry/sdk-metrics";
  import { PrometheusExporter } from "@opentelemetry/exporter-prometheus";
  export async function main(): Promise<MeterProvider> {
    await using engine = await Engine.open({ middleware: { client: [tracing()], server: [tracing()] } });
    const metrics = new EngineMetrics();
    metrics.add(engine, { attributes: { "service.part": "a" } });
    const producer: MetricProducer = metrics;
    // @ts-expect-error a source has statistics
    metrics.add({});
    return new MeterProvider({ readers: [new PrometheusExporter({ metricProducers: [producer] })] });
  }
`;

const common = {
  target: "es2022",
  strict: true,
  noEmit: true,
  skipLibCheck: false,
  exactOptionalPropertyTypes: true,
};

const settings: readonly (readonly [name: string, options: object, file: string, text: string])[] = [
  ["nodenext", { module: "nodenext", lib: ["es2023", "esnext.disposable"] }, "program.mts", program],
  ["nodenext, groups", { module: "nodenext", lib: ["es2023", "esnext.disposable"] }, "members.mts", members],
  [
    "nodenext, telemetry",
    { module: "nodenext", lib: ["es2023", "esnext.disposable"] },
    "telemetry.mts",
    telemetry,
  ],
  [
    "nodenext, CommonJS",
    { module: "nodenext", lib: ["es2023", "esnext.disposable"] },
    "program.cts",
    program,
  ],
  ["node16", { module: "node16", lib: ["es2023", "esnext.disposable"] }, "program.mts", program],
  [
    "bundler",
    { module: "esnext", moduleResolution: "bundler", lib: ["es2023", "esnext.disposable"] },
    "program.ts",
    program,
  ],
  [
    "a contract in a browser",
    { module: "esnext", moduleResolution: "bundler", lib: ["es2022", "dom"], types: [] },
    "contract.ts",
    contract,
  ],
  [
    "a contract without zod and any platform",
    { module: "nodenext", lib: ["es2022"], types: [] },
    "contract.mts",
    plainContract,
  ],
];

describe.each(["5.9", "6", "7"])("TypeScript %s", (version) => {
  const compiler = tool(`typescript-${version}`, "bin/tsc");

  it.each(settings)("finds the types right, those of the package too: %s", (_, options, file, text) => {
    project.write(file, text);
    project.write(
      "tsconfig.json",
      JSON.stringify({ compilerOptions: { ...common, ...options }, files: [file] }),
    );
    const { status, stdout } = project.node([compiler, "-p", "tsconfig.json"]);
    expect(stdout).toBe("");
    expect(status).toBe(0);
    rmSync(project.path(file));
  });
});

it("the package says who it is", () => {
  const manifest = JSON.parse(readFileSync(`${installed}/package.json`, "utf8")) as Record<string, unknown>;
  for (const field of ["description", "keywords", "license", "engines"])
    expect(manifest[field], field).toBeDefined();
  expect(manifest.sideEffects).toEqual(["./dist/cli/**"]);
});
