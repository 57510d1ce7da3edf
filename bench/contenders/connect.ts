import { once } from "node:events";
import { createServer } from "node:http2";
import type { AddressInfo } from "node:net";
import { createClient } from "@connectrpc/connect";
import { connectNodeAdapter, createConnectTransport, Http2SessionManager } from "@connectrpc/connect-node";
import type { Contender } from "./contender.ts";
import { Echo } from "./echo_pb.ts";

/**
 * @connectrpc/connect-node over HTTP/2 without encryption, its own protocol, each call with a deadline. It would
 * compress answers above 1 KiB; that is left off, since on one host it only costs.
 */
export function connectNode(): Contender {
  return {
    async serve() {
      const server = createServer(
        connectNodeAdapter({
          routes: (router) =>
            router.service(Echo, { echo: (message) => message, bytes: (message) => message }),
        }),
      );
      server.listen(0, "127.0.0.1");
      await once(server, "listening");
      const { port } = server.address() as AddressInfo;
      return {
        address: `http://127.0.0.1:${port}`,
        async close() {
          server.close();
        },
      };
    },
    async connect(address) {
      const sessionManager = new Http2SessionManager(address);
      const transport = createConnectTransport({
        baseUrl: address,
        httpVersion: "2",
        sessionManager,
        acceptCompression: [],
        defaultTimeoutMs: 10_000,
      });
      const client = createClient(Echo, transport);
      return {
        echo: (message) => client.echo(message),
        bytes: async (data) => (await client.bytes({ data })).data,
        close: async () => sessionManager.abort(),
      };
    },
  };
}
