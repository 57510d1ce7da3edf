import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { vi } from "vitest";

/** A tool that hangs must not outlive its test. Compilers and bundlers take seconds, on a busy machine over a minute. */
const toolTimeoutMs = 240_000;

// A test runs two tools at most.
vi.setConfig({ testTimeout: 2 * toolTimeoutMs + 20_000, hookTimeout: 2 * toolTimeoutMs });

/** The root of the checkout. */
export const root: string = fileURLToPath(new URL("../../../", import.meta.url));

/** The folder with the tools and the unpacked package; `npm test -- consumers` makes it. */
export const folder: string = process.env.CINNABAR_CONSUMERS ?? join(root, "build/consumers");

/** The package as npm packs it. */
export const tarball: string = process.env.CINNABAR_TARBALL ?? "";

/** The packages of packages/, as npm packs them. */
export const otherTarballs: readonly string[] =
  process.env.CINNABAR_OTHER_TARBALLS?.split(delimiter).filter((file) => file !== "") ?? [];

/** The package, unpacked beside the tools. */
export const installed: string = join(folder, "node_modules/cinnabar");

/** The environment of a user, without settings of this checkout. */
export const environment: NodeJS.ProcessEnv = {
  PATH: process.env.PATH,
  HOME: process.env.HOME,
  NODE_NO_WARNINGS: "1",
};

/** A program of a tool: `tool("webpack", "bin/webpack.js")`. */
export const tool = (name: string, path: string): string => join(folder, "node_modules", name, path);

/** What a process came to. */
export interface Ending {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** A user's project: a folder beside the tools, from which their packages are found. */
export class Project {
  readonly folder: string;

  constructor(name: string, files: Readonly<Record<string, string>> = {}) {
    mkdirSync(join(folder, "projects"), { recursive: true });
    this.folder = mkdtempSync(join(folder, "projects", `${name}-`));
    this.write("package.json", `{ "name": "${name}", "private": true, "type": "module" }`);
    // Tools look for one in the folders above, where that of the checkout is.
    this.write("tsconfig.json", "{}");
    for (const [path, text] of Object.entries(files)) this.write(path, text);
  }

  path(...parts: string[]): string {
    return join(this.folder, ...parts);
  }

  write(path: string, text: string): void {
    mkdirSync(dirname(this.path(path)), { recursive: true });
    writeFileSync(this.path(path), text);
  }

  /** Copies a program of `test/consumers/programs`. */
  copy(program: string): void {
    cpSync(join(root, "test/consumers/programs", program), this.path(program));
  }

  has(path: string): boolean {
    return existsSync(this.path(path));
  }

  /** Runs a script in the project. */
  node(args: readonly string[], options: NodeOptions = {}): Ending {
    return runNode(args, { cwd: this.folder, ...options });
  }

  remove(): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** How to run a script. */
export interface NodeOptions {
  readonly env?: NodeJS.ProcessEnv;
  readonly node?: string;
  readonly cwd?: string;
}

/** Runs a script under this Node, or another. */
export function runNode(
  args: readonly string[],
  { env = {}, node = process.execPath, cwd = folder }: NodeOptions = {},
): Ending {
  const { status, stdout, stderr } = spawnSync(node, args, {
    cwd,
    encoding: "utf8",
    env: { ...environment, ...env },
    timeout: toolTimeoutMs,
  });
  return { status, stdout, stderr };
}

/** What `programs/hello.mjs` prints when all is well. */
export const greetings: string = `${["mem", "tcp"].map((name) => `Hello, ${name} 1048576 7 5`).join("\n")}\n`;

/** What it prints after that for a lane. */
export const laneGreeting = "Hello from a lane\n";
