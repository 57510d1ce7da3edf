import * as grpc from "@grpc/grpc-js";
import { fromJSON } from "@grpc/proto-loader";
import { credentials } from "../security/credentials.ts";
import type { Contender } from "./contender.ts";
import { type SmallObject, smallProto } from "./payloads.ts";

/** echo.proto, loaded at run time as the quick start of gRPC for Node does it, with the options it names. */
const definition = fromJSON(
  {
    nested: {
      bench: {
        nested: {
          Small: smallProto,
          Binary: { fields: { data: { type: "bytes", id: 1 } } },
          Echo: {
            methods: {
              Echo: { requestType: "Small", responseType: "Small", comment: "" },
              Bytes: { requestType: "Binary", responseType: "Binary", comment: "" },
            },
          },
        },
      },
    },
  },
  { keepCase: true, longs: String, enums: String, defaults: true, oneofs: true },
);
const Echo = (grpc.loadPackageDefinition(definition).bench as grpc.GrpcObject)
  .Echo as grpc.ServiceClientConstructor;

type Call<Message> = (
  message: Message,
  options: grpc.CallOptions,
  done: (error: grpc.ServiceError | null, answer: Message) => void,
) => void;
type Binary = { readonly data: Uint8Array };

/**
 * @grpc/grpc-js, each call with a deadline as Cinnabar's have. `bind` is the address to listen at. Encrypted, both sides
 * have certificates.
 */
export function grpcJs(bind: string, isEncrypted = false): Contender {
  const forServer = () => {
    if (!isEncrypted) return grpc.ServerCredentials.createInsecure();
    const { cert, key, ca } = credentials();
    return grpc.ServerCredentials.createSsl(ca, [{ cert_chain: cert, private_key: key }], true);
  };
  const forClient = () => {
    if (!isEncrypted) return grpc.credentials.createInsecure();
    const { cert, key, ca } = credentials();
    return grpc.credentials.createSsl(ca, key, cert);
  };
  return {
    async serve() {
      const server = new grpc.Server();
      const echo: grpc.handleUnaryCall<unknown, unknown> = (call, done) => done(null, call.request);
      server.addService(Echo.service, { Echo: echo, Bytes: echo });
      const port = await new Promise<number>((resolve, reject) => {
        server.bindAsync(bind, forServer(), (error, bound) => {
          if (error === null) resolve(bound);
          else reject(error);
        });
      });
      const address = bind.startsWith("unix:") ? bind : bind.replace(/:0$/, `:${port}`);
      return { address, close: async () => server.forceShutdown() };
    },
    async connect(address) {
      const client = new Echo(
        address,
        forClient(),
        isEncrypted ? { "grpc.ssl_target_name_override": "localhost" } : {},
      );
      const caller = <Message>(name: string) => {
        const call = (client[name] as unknown as Call<Message>).bind(client);
        return (message: Message): Promise<Message> =>
          new Promise((resolve, reject) => {
            call(message, { deadline: Date.now() + 10_000 }, (error, answer) => {
              if (error === null) resolve(answer);
              else reject(error);
            });
          });
      };
      const bytes = caller<Binary>("Bytes");
      return {
        echo: caller<SmallObject>("Echo"),
        bytes: async (data) => (await bytes({ data })).data,
        close: async () => client.close(),
      };
    },
  };
}
