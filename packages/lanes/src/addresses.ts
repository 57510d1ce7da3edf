/** A URL that names a host and a port: what is before the port, and the port. */
const withPort = /^((?:tcp|verbs|net):\/\/.+):(\d{1,5})$/;
/** A URL that names a place of this host, by a name or a path. */
const withName = /^(?:shm|net\+unix|net\+pipe):\/\//;

/** How many characters of a URL's name the fabric takes. */
const mostNameLength = { shm: 64, "net+unix": 103, "net+pipe": 64 } as const;

/**
 * The first address of lane `lane` for a dispatcher's `url`: a name made of the dispatcher's (shm, net+unix, net+pipe),
 * or the dispatcher's host with a free port or the port counted from `firstPort`.
 *
 * @throws TypeError for an address that has no lanes: `mem://` ends at its thread; RangeError for a name that is too
 * long.
 */
export function laneUrl(url: string, lane: number, firstPort: number | undefined): string {
  if (url.startsWith("mem://"))
    throw new TypeError(`openLanes: listen: "${url}" cannot have lanes, mem:// reaches no other thread`);
  if (withName.test(url)) {
    const own = `${url}.lane${lane}`;
    const [scheme, name] = own.split("://", 2) as [keyof typeof mostNameLength, string];
    const most = mostNameLength[scheme];
    if (name.length > most)
      throw new RangeError(
        `openLanes: listen: "${url}": the name of a lane, "${name}", has ${name.length} characters, at most ${most} are allowed`,
      );
    return own;
  }
  const before = withPort.exec(url)?.[1];
  if (before === undefined)
    throw new TypeError(`openLanes: listen: "${url}" cannot have lanes, only tcp, verbs, shm and net can`);
  return `${before}:${firstPort === undefined ? 0 : firstPort + lane}`;
}

/** The port of a URL; undefined without one. */
export function portOf(url: string): number | undefined {
  const port = withPort.exec(url)?.[2];
  return port === undefined ? undefined : Number(port);
}

/** The same URL with another port. */
export function atPort(url: string, port: number): string {
  return url.replace(/\d+$/, String(port));
}

/** The host of a URL, without brackets; "" without one. */
export function hostOf(url: string): string {
  const before = withPort.exec(url)?.[1];
  return before === undefined ? "" : before.slice(before.indexOf("://") + 3).replace(/^\[(.*)\]$/, "$1");
}

/** The same URL with another host. */
export function atHost(url: string, host: string): string {
  const [scheme] = url.split("://", 1);
  return `${scheme}://${host.includes(":") ? `[${host}]` : host}:${portOf(url)}`;
}

const wildcards: ReadonlySet<string> = new Set(["0.0.0.0", "::", "*"]);

/** Whether a host means every interface. */
export function isWildcard(host: string): boolean {
  return wildcards.has(host);
}

export function schemeOf(url: string): string {
  return url.slice(0, url.indexOf("://"));
}
