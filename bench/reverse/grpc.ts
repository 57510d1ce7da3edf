import * as grpc from "@grpc/grpc-js";
import { fromJSON } from "@grpc/proto-loader";
import { measureCallers } from "../contenders/client-party.ts";
import { type SmallObject, smallObject, smallProto } from "../contenders/payloads.ts";
import type { ReverseParty, Role } from "./party.ts";

/** A request or its answer, on a stream that the connector has opened. */
interface Numbered {
  readonly number: number;
  readonly message: SmallObject;
}

const definition = fromJSON(
  {
    nested: {
      bench: {
        nested: {
          Small: smallProto,
          Numbered: {
            fields: { number: { type: "uint32", id: 1 }, message: { type: "Small", id: 2 } },
          },
          Reverse: {
            methods: {
              Serve: {
                requestType: "Numbered",
                responseType: "Numbered",
                requestStream: true,
                responseStream: true,
                comment: "",
              },
            },
          },
        },
      },
    },
  },
  { keepCase: true, longs: String, enums: String, defaults: true, oneofs: true },
);
const Reverse = (grpc.loadPackageDefinition(definition).bench as grpc.GrpcObject)
  .Reverse as grpc.ServiceClientConstructor;

/**
 * The same task without calls back: the connector opens a bidirectional stream, the listener writes requests on it, each
 * with a number, and finds the answers by these. Each request has a deadline, as calls of Cinnabar have.
 */
export async function open(role: Role, address: string): Promise<ReverseParty> {
  return role === "listener" ? listener() : connector(address);
}

async function listener(): Promise<ReverseParty> {
  let stream: grpc.ServerDuplexStream<Numbered, Numbered> | undefined;
  let last = 0;
  const waiting = new Map<number, { resolve(message: SmallObject): void; timer: NodeJS.Timeout }>();
  const server = new grpc.Server();
  server.addService(Reverse.service, {
    Serve(call: grpc.ServerDuplexStream<Numbered, Numbered>) {
      stream = call;
      call.on("error", () => {});
      call.on("data", ({ number, message }: Numbered) => {
        const waiter = waiting.get(number);
        waiting.delete(number);
        clearTimeout(waiter?.timer);
        waiter?.resolve(message);
      });
    },
  });
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync("127.0.0.1:0", grpc.ServerCredentials.createInsecure(), (error, bound) =>
      error === null ? resolve(bound) : reject(error),
    );
  });
  const ask = (message: SmallObject) =>
    new Promise<SmallObject>((resolve, reject) => {
      const number = ++last;
      const timer = setTimeout(() => {
        waiting.delete(number);
        reject(new Error("no answer within 10 s"));
      }, 10_000);
      waiting.set(number, { resolve, timer });
      stream?.write({ number, message });
    });
  return {
    address: async () => `127.0.0.1:${port}`,
    measure: (inFlight, durationMs) => measureCallers(() => ask(smallObject), inFlight, durationMs),
    close: async () => server.forceShutdown(),
  };
}

async function connector(address: string): Promise<ReverseParty> {
  const client = new Reverse(address, grpc.credentials.createInsecure());
  const serve = client.Serve as unknown as () => grpc.ClientDuplexStream<Numbered, Numbered>;
  const stream = serve.call(client);
  stream.on("error", () => {});
  stream.on("data", (request: Numbered) => stream.write(request));
  await new Promise<void>((resolve, reject) =>
    client.waitForReady(Date.now() + 10_000, (error) => (error === undefined ? resolve() : reject(error))),
  );
  return {
    address: async () => address,
    measure: () => Promise.reject(new Error("the connector only answers")),
    close: async () => client.close(),
  };
}
