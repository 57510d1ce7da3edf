import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { loadContender } from "../contenders/index.ts";
import { smallObject } from "../contenders/payloads.ts";
import type { Party } from "../suite/child.ts";

/** A process with a web server that also calls a service, as a back end does. */
export interface Host extends Party {
  /** The port of the web server. */
  webPort(): Promise<number>;
  /** Keeps so many calls in flight from now on, each caller without a pause. */
  call(inFlight: number): Promise<void>;
  /** Ends that. Returns how many calls were made. */
  stop(): Promise<number>;
}

export async function open(key: string, id: string, address: string): Promise<Host> {
  const connection = await (await loadContender(key, id)).connect(address);
  const web = createServer((_request, response) => response.end("here")).listen(0, "127.0.0.1");
  await once(web, "listening");
  let goesOn = false;
  let calls = 0;
  let callers: readonly Promise<void>[] = [];
  const caller = async () => {
    while (goesOn) {
      await connection.echo(smallObject);
      calls++;
    }
  };
  const stop = async () => {
    goesOn = false;
    await Promise.all(callers);
    return calls;
  };
  return {
    webPort: async () => (web.address() as AddressInfo).port,
    async call(inFlight) {
      goesOn = true;
      calls = 0;
      callers = Array.from({ length: inFlight }, caller);
    },
    stop,
    async close() {
      await stop();
      web.closeAllConnections();
      web.close();
      await connection.close();
    },
  };
}
