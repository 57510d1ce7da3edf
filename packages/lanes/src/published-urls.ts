import { Engine } from "cinnabar/standard";
import { atPort, portOf } from "./addresses.ts";

/**
 * The published addresses one by one: a `verbs://` URL for several devices becomes one URL for each device. The
 * dispatcher and every thread of every lane listen at these addresses, in this order, even if devices come and go
 * meanwhile. So each lane has an address for each of the dispatcher's, and all lanes have the same number of addresses.
 *
 * @throws RpcError `invalid_argument` where no device fits, `unimplemented` on a host without devices.
 */
export async function publishedUrls(listen: readonly string[]): Promise<string[]> {
  const published: string[] = [];
  for (const url of listen) published.push(...(url.startsWith("verbs://") ? await onDevices(url) : [url]));
  return published;
}

/** An engine finds the devices for the host of a URL: it listens there at free ports for a moment. */
async function onDevices(url: string): Promise<string[]> {
  await using engine = await Engine.open({ listen: atPort(url, 0) });
  return engine.urls.map((each) => atPort(each, portOf(url) ?? 0));
}
