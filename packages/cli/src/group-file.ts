import type { GroupFile } from "cinnabar-group";
import { CommandError, type Connection } from "./connection.ts";

/** What `--help` says of `--group`. */
export const groupHelp = `  --group FILE     Instead of URLs, or beside them: the members that a file of
                   \`saveGroup\` or \`groupFromFile\` names.`;

/**
 * URLs that were named, and those of a group's members by rank: of each member the first that this process can connect
 * to. A member that cannot be reached has its first one.
 *
 * @throws CommandError for a file that describes no group, and where `cinnabar-group` is not installed.
 */
export async function withGroup(
  named: readonly string[],
  file: string | undefined,
  connection: Connection,
): Promise<readonly string[]> {
  if (file === undefined) return named;
  const { members } = await readGroup(file, connection.signal);
  const urls = await Promise.all(members.map(({ urls }) => reachable(urls, connection)));
  return [...new Set([...named, ...urls])];
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

async function reachable(urls: readonly string[], connection: Connection): Promise<string> {
  const [first = ""] = urls;
  if (urls.length === 1) return first;
  for (const url of urls) {
    try {
      await connection.dial(url);
      return url;
    } catch (error) {
      if (connection.signal.aborted || !(error instanceof CommandError)) throw error;
    }
  }
  return first;
}
