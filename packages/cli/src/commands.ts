import type { Command } from "./command.ts";

/** What the list of commands says of one. Its code loads when it is asked for, so that the list appears at once. */
export interface ListedCommand {
  readonly name: string;
  /** Half a line. */
  readonly summary: string;
  load(): Promise<Command>;
}

/** The commands as the help lists them. */
export const commandGroups: readonly {
  readonly title: string;
  readonly commands: readonly ListedCommand[];
}[] = [
  {
    title: "This machine",
    commands: [
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
    ],
  },
  {
    title: "One application",
    commands: [
      {
        name: "serve",
        summary: "Starts the components of an application, and stops them on a signal.",
        load: async () => (await import("./commands/serve.ts")).serve,
      },
    ],
  },
  {
    title: "One contract",
    commands: [
      {
        name: "proto",
        summary: "Writes a contract as a file of Protobuf, for clients in other languages.",
        load: async () => (await import("./commands/proto.ts")).proto,
      },
    ],
  },
  {
    title: "One server",
    commands: [
      {
        name: "list",
        summary: "Prints the services and methods of a server.",
        load: async () => (await import("./commands/list.ts")).list,
      },
      {
        name: "describe",
        summary: "Prints what the methods of a server take and give.",
        load: async () => (await import("./commands/describe.ts")).describe,
      },
      {
        name: "call",
        summary: "Calls a method with JSON, files or lines of standard input.",
        load: async () => (await import("./commands/call.ts")).call,
      },
      {
        name: "ping",
        summary: "Measures how long a server takes to answer.",
        load: async () => (await import("./commands/ping.ts")).ping,
      },
      {
        name: "health",
        summary: "Prints whether a server or a service serves, once or at each change.",
        load: async () => (await import("./commands/health.ts")).health,
      },
    ],
  },
  {
    title: "One server or several",
    commands: [
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
      {
        name: "bench",
        summary: "Loads a server, in a closed loop or by a rate, and prints its latency.",
        load: async () => (await import("./commands/bench.ts")).bench,
      },
    ],
  },
  {
    title: "Disks",
    commands: [
      {
        name: "disk",
        summary: "Serves a file as a disk, over NVMe/TCP and NBD.",
        load: async () => (await import("./commands/disk.ts")).disk,
      },
    ],
  },
  {
    title: "Shells",
    commands: [
      {
        name: "completion",
        summary: "Prints the completion of a shell, which knows the methods of servers.",
        load: async () => (await import("./commands/completion.ts")).completion,
      },
      {
        name: "man",
        summary: "Prints the manual page.",
        load: async () => (await import("./commands/man.ts")).man,
      },
    ],
  },
];

/** All of them. */
export const commands = commandGroups.flatMap((group) => group.commands);
