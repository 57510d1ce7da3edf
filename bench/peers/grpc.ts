import * as grpc from "@grpc/grpc-js";
import { Packr } from "msgpackr";
import type { Contender } from "../contender.ts";
import type { SmallObject } from "../message.ts";

const packr = new Packr();
const serialize = (value: SmallObject): Buffer => packr.pack(value);
const deserialize = (bytes: Buffer): SmallObject => packr.unpack(bytes);

// The same codec as Cinnabar's instead of Protocol Buffers, so that the difference is the RPC and not the encoding.
const Echo = {
  echo: {
    path: "/bench.echo.v1/echo",
    requestStream: false,
    responseStream: false,
    requestSerialize: serialize,
    requestDeserialize: deserialize,
    responseSerialize: serialize,
    responseDeserialize: deserialize,
  },
} as const satisfies grpc.ServiceDefinition;

type EchoCall = (
  message: SmallObject,
  options: grpc.CallOptions,
  done: (error: grpc.ServiceError | null, answer: SmallObject) => void,
) => void;

const EchoClient = grpc.makeGenericClientConstructor(Echo, "Echo");

/** @grpc/grpc-js, unencrypted, each call with a deadline as Cinnabar's have. `listen` names the address to bind. */
export function grpcJs(name: string, listen: () => string): Contender {
  return {
    name,
    async serve() {
      const server = new grpc.Server();
      server.addService(Echo, {
        echo(call: { request: SmallObject }, done: grpc.sendUnaryData<SmallObject>) {
          done(null, call.request);
        },
      });
      const bind = listen();
      const port = await new Promise<number>((resolve, reject) => {
        server.bindAsync(bind, grpc.ServerCredentials.createInsecure(), (error, bound) => {
          if (error === null) resolve(bound);
          else reject(error);
        });
      });
      const address = bind.startsWith("unix:") ? bind : bind.replace(/:0$/, `:${port}`);
      return { address, close: () => new Promise((resolve) => server.tryShutdown(() => resolve())) };
    },
    async connect(address) {
      const client = new EchoClient(address, grpc.credentials.createInsecure());
      const echo = (client as unknown as { echo: EchoCall }).echo.bind(client);
      return {
        echo: (message) =>
          new Promise((resolve, reject) => {
            echo(message, { deadline: Date.now() + 10_000 }, (error, answer) => {
              if (error === null) resolve(answer);
              else reject(error);
            });
          }),
        async close() {
          client.close();
        },
      };
    },
  };
}
