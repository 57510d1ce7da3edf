import { once } from "node:events";
import { connect as dial, type NetConnectOpts } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as grpc from "@grpc/grpc-js";
import { fromJSON } from "@grpc/proto-loader";
import { Engine, implement } from "cinnabar";
import { Packr } from "msgpackr";
import type { Serving } from "../contenders/contender.ts";
import { Frames, serveSockets } from "../contenders/net.ts";
import { type SmallObject, smallObject, smallProto } from "../contenders/payloads.ts";
import { Items } from "./contract.ts";

/** A consumer: calls `onItem` for each until that says no more. Resolves when the stream has been given up. */
export type Consume = (onItem: (item: SmallObject) => boolean) => Promise<void>;

/** A library that streams over one transport. The server sends as long as it is read, and respects back-pressure. */
export interface StreamContender {
  readonly title: string;
  serve(): Promise<Serving>;
  connect(address: string): Promise<{ consume: Consume; close(): Promise<void> }>;
}

function cinnabar(title: string, listen: string): StreamContender {
  return {
    title,
    async serve() {
      const engine = await Engine.open({
        listen: [listen],
        serve: [
          implement(Items, {
            async *watch() {
              for (;;) yield smallObject;
            },
            note: () => {},
            echo: (input) => input,
          }),
        ],
      });
      return { address: engine.urls[0] ?? "", close: () => engine.close() };
    },
    async connect(address) {
      const engine = await Engine.open();
      const { watch } = (await engine.connect(address)).client(Items);
      return {
        async consume(onItem) {
          for await (const item of watch()) if (!onItem(item)) break;
        },
        close: () => engine.close(),
      };
    },
  };
}

/** By hand: msgpackr, a length before each item, `drain` respected; nothing is validated. */
function net(title: string, listen: NetConnectOpts): StreamContender {
  return {
    title,
    serve: () =>
      serveSockets(listen, {}, (socket) => {
        const codec = new Packr();
        const frames = new Frames(socket, () => {});
        const send = () => {
          while (!socket.destroyed && frames.send(0, codec.pack(smallObject)));
        };
        socket.on("drain", send);
        send();
      }),
    async connect(address) {
      return {
        async consume(onItem) {
          const socket = dial(JSON.parse(address) as NetConnectOpts);
          const codec = new Packr();
          new Frames(socket, (_, body) => {
            if (!socket.destroyed && !onItem(codec.unpack(body) as SmallObject)) socket.destroy();
          });
          await once(socket, "close");
        },
        close: async () => {},
      };
    },
  };
}

const definition = fromJSON(
  {
    nested: {
      Small: smallProto,
      Items: {
        methods: {
          Watch: { requestType: "Small", responseType: "Small", responseStream: true, comment: "" },
        },
      },
    },
  },
  { keepCase: true, longs: String, enums: String, defaults: true, oneofs: true },
);
const GrpcItems = grpc.loadPackageDefinition(definition).Items as grpc.ServiceClientConstructor;

function grpcJs(title: string, bind: string): StreamContender {
  return {
    title,
    async serve() {
      const server = new grpc.Server();
      const watch: grpc.handleServerStreamingCall<SmallObject, SmallObject> = (call) => {
        const send = () => {
          while (!call.cancelled && call.write(smallObject));
        };
        call.on("drain", send);
        call.on("error", () => {});
        send();
      };
      server.addService(GrpcItems.service, {
        Watch: watch as grpc.handleServerStreamingCall<unknown, unknown>,
      });
      const port = await new Promise<number>((resolve, reject) => {
        server.bindAsync(bind, grpc.ServerCredentials.createInsecure(), (error, bound) => {
          if (error === null) resolve(bound);
          else reject(error);
        });
      });
      const address = bind.startsWith("unix:") ? bind : bind.replace(/:0$/, `:${port}`);
      return { address, close: async () => server.forceShutdown() };
    },
    async connect(address) {
      const client = new GrpcItems(address, grpc.credentials.createInsecure());
      const watch = (client.Watch as (input: SmallObject) => grpc.ClientReadableStream<SmallObject>).bind(
        client,
      );
      return {
        async consume(onItem) {
          const stream = watch(smallObject);
          stream.on("error", () => {});
          for await (const item of stream) if (!onItem(item as SmallObject)) break;
          stream.cancel();
        },
        close: async () => client.close(),
      };
    },
  };
}

/** By the key that figures begin with. `id` is unique to the run. */
export function streamContender(key: string, id: string): StreamContender {
  switch (key) {
    case "shm":
      return cinnabar("Cinnabar shm", `shm://bench-items-${id}`);
    case "tcp":
      return cinnabar("Cinnabar tcp", "tcp://127.0.0.1:0");
    case "net-tcp":
      return net("node:net tcp", { host: "127.0.0.1", port: 0 });
    case "grpc-tcp":
      return grpcJs("grpc-js tcp", "127.0.0.1:0");
    case "grpc-unix":
      return grpcJs("grpc-js Unix socket", `unix:${join(tmpdir(), `cinnabar-items-${id}.sock`)}`);
    default:
      throw new Error(`no contender for streams is called ${key}`);
  }
}

export const streamKeys = ["shm", "tcp", "net-tcp", "grpc-tcp", "grpc-unix"] as const;
