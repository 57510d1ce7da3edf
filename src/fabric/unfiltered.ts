import { isIP } from "node:net";

/**
 * Warns about a port that other machines can reach and that hands their bytes to libfabric unchecked. A few such bytes
 * can end the process (docs/design/tcp.md).
 */
export function warnIfUnfiltered(url: string, host: string): void {
  if (isLoopback(host)) return;
  process.emitWarning(
    `${url} takes bytes from anybody who can connect, and libfabric's tcp provider crashes on some. ` +
      "Switch the patch tcp-sockets on, or let nobody else connect",
    { type: "CinnabarWarning", code: "CINNABAR_TCP_UNFILTERED" },
  );
}

/** Whether only this machine reaches a numeric address. */
export function isLoopback(host: string): boolean {
  return isIP(host) === 4 ? host.startsWith("127.") : host === "::1" || host.startsWith("::ffff:127.");
}
