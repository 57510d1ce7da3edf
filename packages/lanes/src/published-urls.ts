import { Engine } from "cinnabar/standard";
import { atPort, portOf } from "./addresses.ts";

/**
 * The published addresses one by one: a `verbs://` URL that stands for several devices becomes one for each. The
 * dispatcher and every thread of every lane listen at these, in this order, whatever devices come and go meanwhile. So
 * each lane has an address for each of the dispatcher's, and the same number over all of them.
 *
 * @throws RpcError `invalid_argument` where no device fits, `unimplemented` where there is none.
 */
export async function publishedUrls(listen: readonly string[]): Promise<string[]> {
  const published: string[] = [];
  for (const url of listen) published.push(...(url.startsWith("verbs://") ? await onDevices(url) : [url]));
  return published;
}

/** An engine tells which devices the host of a URL stands for: it listens there at free ports for a moment. */
async function onDevices(url: string): Promise<string[]> {
  await using engine = await Engine.open({ listen: atPort(url, 0) });
  return engine.urls.map((each) => atPort(each, portOf(url) ?? 0));
}
