import { formatHostUrl, hasHosts, mostPathBytes, parseUrl } from "../fabric/libfabric/url.ts";
import { listeningUrls } from "../fabric/rdma/choose-rail.ts";

/**
 * The published addresses one by one: a `verbs://` URL that stands for several devices becomes one for each. The
 * dispatcher and every thread of every lane listen at these, in this order, whatever devices come and go meanwhile. So
 * each lane has an address for each of the dispatcher's, and the same number over all of them.
 *
 * @throws RpcError `invalid_argument` where no device fits, `unimplemented` where there is none; RangeError where the
 * devices' addresses are too long for so many lanes.
 */
export function publishedUrls(
  listen: readonly string[],
  lanes: number,
  firstPort: number | undefined,
): string[] {
  const urls = listen.flatMap((url) => listeningUrls(url, undefined));
  for (const url of urls) assertListFits(url, lanes, firstPort);
  return urls;
}

/**
 * The first address of lane `lane` for a dispatcher's `url`: a name made of the dispatcher's (shm, net+unix, net+pipe),
 * or the dispatcher's host with a free port or the port counted from `firstPort`.
 *
 * @throws TypeError for an address that has no lanes: `mem://` ends at its thread; RangeError for a port or a name
 * beyond what there is.
 */
export function laneUrl(url: string, lane: number, firstPort: number | undefined): string {
  const { scheme, host, name } = parseUrl(url);
  if (scheme === "mem")
    throw new TypeError(`openLanes: listen: "${url}" cannot have lanes, mem:// reaches no other thread`);
  if (scheme === "shm" || scheme === "net+unix" || scheme === "net+pipe") {
    const own = `${name}.lane${lane}`;
    const maxNameLength = scheme === "net+unix" ? mostPathBytes : 64;
    if (own.length > maxNameLength)
      throw new RangeError(
        `openLanes: listen: "${url}": the name of a lane, "${own}", has ${own.length} characters, at most ${maxNameLength} are allowed`,
      );
    return `${scheme}://${own}`;
  }
  if (!hasHosts(scheme))
    throw new TypeError(`openLanes: listen: "${url}" cannot have lanes, only tcp, verbs, shm and net can`);
  const port = firstPort === undefined ? 0 : firstPort + lane;
  return formatHostUrl(scheme, host, port);
}

/** What the list of lanes may take of a message of 16 KiB. The rest of a welcome stands beside it. */
const maxListBytes = 12 * 1024;

/**
 * The list of lanes goes into one message: a list that is pulled as a rendezvous body could be overtaken by the next.
 *
 * @throws RangeError for more lanes than fit there, with addresses so long.
 */
export function assertListFits(url: string, lanes: number, firstPort: number | undefined): void {
  let bytes = 3;
  for (let lane = 0; lane < lanes; lane++) {
    const own = laneUrl(url, lane, firstPort);
    // As msgpack has it, with the port that it will get: an array of a string and 64 bits.
    bytes += 1 + 3 + (own.endsWith(":0") ? own.length + 4 : own.length) + 9;
  }
  if (bytes > maxListBytes)
    throw new RangeError(
      `openLanes: lanes: the list of ${lanes} lanes of "${url}" would have ${bytes} bytes, at most ${maxListBytes} are allowed: use fewer lanes or a shorter ${hasHosts(parseUrl(url).scheme) ? "host" : "name"}`,
    );
}
