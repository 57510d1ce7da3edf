import { openLanes } from "cinnabar-lanes";
import type { Party } from "../../suite/child.ts";

/** The server, in its process. */
export async function open(url: string, lanes: number): Promise<Party> {
  const host = await openLanes(new URL("./service.js", import.meta.url), {
    listen: url,
    lanes,
    dispatcher: "refer",
  });
  return { close: () => host.close() };
}
