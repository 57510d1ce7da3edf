import { type Ending, type Project, tool } from "./project.ts";

/** How a bundle is made. */
export interface BundleOptions {
  /** The bundle's module system. */
  readonly format: "esm" | "cjs";
  /** Whether `cinnabar` stays outside, as the guide says, or becomes part of the bundle. */
  readonly external: boolean;
}

/** A bundler: it makes `out/bundle.mjs` or `out/bundle.cjs` of a project's `program.mjs`. */
export interface Bundler {
  readonly name: string;
  readonly bundle: (project: Project, options: BundleOptions) => Ending;
}

/** The name of the bundle in `out/`. */
export const outputOf = ({ format }: BundleOptions) => (format === "esm" ? "bundle.mjs" : "bundle.cjs");
const externals = ["cinnabar", "cinnabar-lanes", "zod"];

function configured(project: Project, file: string, config: string, args: readonly string[]): Ending {
  project.write(file, config);
  return project.node(args);
}

const esbuild: Bundler = {
  name: "esbuild",
  bundle: (project, options) =>
    project.node([
      tool("esbuild", "bin/esbuild"),
      ...["program.mjs", "--bundle", "--platform=node", "--minify", "--log-level=warning"],
      ...[`--format=${options.format}`, `--outfile=out/${outputOf(options)}`],
      ...(options.external ? ["--packages=external"] : []),
    ]),
};

const rolldown: Bundler = {
  name: "rolldown",
  bundle: (project, options) =>
    configured(
      project,
      "rolldown.config.mjs",
      `export default {
        input: "program.mjs",
        platform: "node",
        external: ${JSON.stringify(options.external ? externals : [])},
        output: { file: "out/${outputOf(options)}", format: "${options.format}", minify: true, codeSplitting: false },
      };`,
      [tool("rolldown", "bin/cli.mjs"), "-c", "rolldown.config.mjs"],
    ),
};

const rollup: Bundler = {
  name: "rollup",
  bundle: (project, options) =>
    configured(
      project,
      "rollup.config.mjs",
      `import commonjs from "@rollup/plugin-commonjs";
      import { nodeResolve } from "@rollup/plugin-node-resolve";
      export default {
        input: "program.mjs",
        external: [/^node:/, ...${JSON.stringify(options.external ? externals : [])}],
        plugins: [nodeResolve({ exportConditions: ["node"] }), commonjs()],
        output: { file: "out/${outputOf(options)}", format: "${options.format}", inlineDynamicImports: true },
      };`,
      [tool("rollup", "dist/bin/rollup"), "-c", "rollup.config.mjs", "--silent"],
    ),
};

const webpack: Bundler = {
  name: "webpack",
  bundle: (project, options) => {
    const type = options.format === "esm" ? "module" : "commonjs2";
    const kind = options.format === "esm" ? "module" : "node-commonjs";
    return configured(
      project,
      "build.mjs",
      `import webpack from "webpack";
      const compiler = webpack({
        mode: "production",
        target: "node20",
        entry: "./program.mjs",
        context: import.meta.dirname,
        externals: ${JSON.stringify(options.external ? Object.fromEntries(externals.map((name) => [name, `${kind} ${name}`])) : {})},
        optimization: { minimize: false },
        experiments: { outputModule: ${options.format === "esm"} },
        output: { path: import.meta.dirname + "/out", filename: "${outputOf(options)}", library: { type: "${type}" } },
      });
      compiler.run((error, stats) => {
        if (error) throw error;
        const { errors, warnings } = stats.toJson({ all: false, errors: true, warnings: true });
        for (const { message } of [...errors, ...warnings]) console.error(message);
        process.exitCode = errors.length + warnings.length > 0 ? 1 : 0;
        compiler.close(() => {});
      });`,
      ["build.mjs"],
    );
  },
};

const vite: Bundler = {
  name: "Vite SSR",
  bundle: (project, options) =>
    configured(
      project,
      "vite.config.mjs",
      `export default {
        logLevel: "warn",
        ssr: { target: "node", ${options.external ? "" : "noExternal: true"} },
        build: {
          ssr: "program.mjs",
          outDir: "out",
          rolldownOptions: { output: { format: "${options.format}", entryFileNames: "${outputOf(options)}" } },
        },
      };`,
      [tool("vite", "bin/vite.js"), "build"],
    ),
};

export const bundlers: readonly Bundler[] = [esbuild, rolldown, rollup, vite, webpack];
