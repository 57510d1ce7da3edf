import { otherRuntime } from "./runtime.ts";

/** The properties of a machine that decide whether an addon exists for it. */
export interface Machine {
  readonly platform: NodeJS.Platform;
  readonly arch: string;
  /** Whether this Node uses glibc; only asked on Linux. */
  readonly hasGlibc: boolean;
  /** What runs instead of Node, with its version; "" for Node. */
  readonly otherRuntime: string;
}

/** This machine. */
export function thisMachine(): Machine {
  const { platform, arch } = process;
  const runtime = otherRuntime();
  return { platform, arch, hasGlibc: platform === "linux" && runsOnGlibc(), otherRuntime: runtime };
}

/** Platforms that the package has binaries for, in words. */
const supported = "Linux on x64 and arm64 with glibc 2.28 or later";

/** What to do where the addon was not found. */
export function adviceForMissingAddon({ platform, arch, hasGlibc, otherRuntime }: Machine): string {
  if (otherRuntime !== "") return `Run Node, or use net:// and mem://, which work on ${otherRuntime}`;
  if (platform !== "linux")
    return `The package has binaries for ${supported}, and its sources build on Linux only; net:// and mem:// work everywhere`;
  if (!hasGlibc)
    return (
      "This Node is built for musl, and the addon needs glibc: take an image such as node:24-slim. " +
      `The package has binaries for ${supported}; net:// and mem:// work everywhere`
    );
  const build =
    "Build it by npx cinnabar build, from the sources in the package, which takes cmake and a C++20 compiler; " +
    "in a checkout by npm run setup";
  const hasBinary = arch === "x64" || arch === "arm64";
  const why = hasBinary ? "" : `The package has binaries for ${supported}, not for ${arch}. `;
  return `${why}${build}; net:// and mem:// work without it`;
}

function runsOnGlibc(): boolean {
  const { report } = process as { report?: { excludeNetwork?: boolean; getReport(): unknown } };
  if (report === undefined) return true;
  // Looking up the names of connections may take seconds.
  const before = report.excludeNetwork;
  report.excludeNetwork = true;
  const { header } = report.getReport() as { header: { glibcVersionRuntime?: string } };
  if (before !== undefined) report.excludeNetwork = before;
  return header.glibcVersionRuntime !== undefined;
}
