import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { createTRPCClient, createWSClient, wsLink } from "@trpc/client";
import { initTRPC } from "@trpc/server";
import { applyWSSHandler } from "@trpc/server/adapters/ws";
import { WebSocket, WebSocketServer } from "ws";
import { z } from "zod";
import type { Contender } from "./contender.ts";

const { router, procedure } = initTRPC.create();
const echoRouter = router({
  echo: procedure
    .input(z.object({ id: z.int(), name: z.string(), text: z.string() }))
    .query(({ input }) => input),
  bytes: procedure.input(z.string()).query(({ input }) => input),
});

/** tRPC over one WebSocket, the server validating with zod. It speaks JSON, so bytes travel as Base64. */
export function trpc(): Contender {
  return {
    async serve() {
      const wss = new WebSocketServer({ host: "127.0.0.1", port: 0 });
      applyWSSHandler({ wss, router: echoRouter });
      await once(wss, "listening");
      const { port } = wss.address() as AddressInfo;
      return {
        address: `ws://127.0.0.1:${port}`,
        async close() {
          for (const socket of wss.clients) socket.terminate();
          wss.close();
        },
      };
    },
    async connect(address) {
      const wsClient = createWSClient({ url: address, WebSocket: WebSocket as never });
      const client = createTRPCClient<typeof echoRouter>({ links: [wsLink({ client: wsClient })] });
      return {
        echo: (message) => client.echo.query(message),
        async bytes(bytes) {
          const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("base64");
          return Buffer.from(await client.bytes.query(text), "base64");
        },
        close: async () => void wsClient.close(),
      };
    },
  };
}
