import type { Server } from "node:http";
import type { Http2Server } from "node:http2";
import type { AddressInfo } from "node:net";
import { onTestFinished } from "vitest";

/** The port of a server that has no connections left when the test ends. */
export async function listen(server: Server | Http2Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(
    () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        if ("closeAllConnections" in server) server.closeAllConnections();
      }),
  );
  return (server.address() as AddressInfo).port;
}
