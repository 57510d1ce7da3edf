import { formatHostUrl, hasHosts, parseUrl } from "../fabric/url.ts";

/**
 * Where lane `lane` of a front that listens at `url` listens at first: under a name made of the front's, or at the front's host, at a free port or, counted from `firstPort`, at one of its own.
 *
 * @throws TypeError for an address that has no lanes: `mem://` ends at its thread; RangeError for a port or a name beyond what there is.
 */
export function laneUrl(url: string, lane: number, firstPort: number | undefined): string {
  const { scheme, host, name } = parseUrl(url);
  if (scheme === "mem")
    throw new TypeError(`openLanes: listen: "${url}" cannot have lanes, mem:// reaches no other thread`);
  if (!hasHosts(scheme)) {
    const own = `${name}.lane${lane}`;
    if (own.length > maxNameLength)
      throw new RangeError(
        `openLanes: listen: "${url}": a lane's name is made of it, "${own}" has ${own.length} characters and may have ${maxNameLength}`,
      );
    return `${scheme}://${own}`;
  }
  const port = firstPort === undefined ? 0 : firstPort + lane;
  return formatHostUrl(scheme, host, port);
}

const maxNameLength = 64;
