import type { Command } from "./command.ts";

/** What the list of commands says of one. Its code loads when it is asked for, so that the list appears at once. */
export interface ListedCommand {
  readonly name: string;
  /** Half a line. */
  readonly summary: string;
  load(): Promise<Command>;
}

/** All commands, in the order of the help. */
export const commands: readonly ListedCommand[] = [
  {
    name: "info",
    summary: "Prints usable fabrics, RDMA devices, limits and versions.",
    load: async () => (await import("./commands/info.ts")).info,
  },
  {
    name: "build",
    summary: "Builds the native addon from source, where the package has no binary.",
    load: async () => (await import("./commands/build.ts")).build,
  },
  {
    name: "keys",
    summary: "Makes certificates, revocation lists and shared keys for engines.",
    load: async () => (await import("./commands/keys.ts")).keys,
  },
  {
    name: "top",
    summary: "Shows rates, latency, errors and memory of engines as they run.",
    load: async () => (await import("./commands/top.ts")).top,
  },
  {
    name: "why",
    summary: "Prints where open calls stand, phase by phase, at both ends.",
    load: async () => (await import("./commands/why.ts")).why,
  },
  {
    name: "tail",
    summary: "Prints calls as they end.",
    load: async () => (await import("./commands/tail.ts")).tail,
  },
];
