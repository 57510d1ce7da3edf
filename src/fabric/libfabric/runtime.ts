/**
 * The runtime and its version where Node's modules run in another one than Node, as "Bun 1.4.5". "" on Node.
 */
export function otherRuntime(
  versions: Readonly<Record<string, string | undefined>> = process.versions,
): string {
  if (versions.bun !== undefined) return `Bun ${versions.bun}`;
  return versions.deno === undefined ? "" : `Deno ${versions.deno}`;
}
