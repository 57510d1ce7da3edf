import type { GroupFile } from "cinnabar-group";
import { CommandError } from "./command-error.ts";
import { type Connection, type Server, serversOf } from "./connection.ts";

/** What `--help` says of `--group`. */
export const groupHelp = `  --group FILE     Instead of URLs, or beside them: the members that a file of
                   \`saveGroup\` or \`groupFromFile\` names.`;

/**
 * Servers that were named, and those of a group's members by rank: of each member the first URL that this process can
 * connect to. A member that cannot be reached has its first one.
 *
 * @throws UsageError for another number of names, CommandError for a file that describes no group, and where
 *   `cinnabar-group` is not installed.
 */
export async function withGroup(
  named: readonly string[],
  file: string | undefined,
  connection: Connection,
): Promise<readonly Server[]> {
  const members = file === undefined ? [] : (await readGroup(file, connection.signal)).members;
  const firsts = serversOf([...named, ...members.map(({ urls }) => urls[0] ?? "")], connection.names);
  const found = await Promise.all(
    members.map(({ urls }, rank) =>
      reachable(
        urls.map((url) => ({ url, name: firsts[named.length + rank]?.name })),
        connection,
      ),
    ),
  );
  // A member may be named beside its group.
  const servers = new Map([...firsts.slice(0, named.length), ...found].map((server) => [server.url, server]));
  return [...servers.values()];
}

async function readGroup(file: string, signal: AbortSignal): Promise<GroupFile> {
  let group: typeof import("cinnabar-group");
  try {
    group = await import("cinnabar-group");
  } catch (error) {
    throw new CommandError(`--group needs the package cinnabar-group: ${(error as Error).message}`);
  }
  try {
    return await group.groupFromFile(file, { timeoutMs: 1, signal });
  } catch (error) {
    throw new CommandError(`--group: ${(error as Error).message}`);
  }
}

async function reachable(servers: readonly Server[], connection: Connection): Promise<Server> {
  const [first = { url: "", name: undefined }] = servers;
  if (servers.length === 1) return first;
  for (const server of servers) {
    try {
      await connection.dial(server);
      return server;
    } catch (error) {
      if (connection.signal.aborted || !(error instanceof CommandError)) throw error;
    }
  }
  return first;
}
