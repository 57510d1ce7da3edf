import "reflect-metadata";
import { fromJSON } from "@grpc/proto-loader";
import { Controller, type INestMicroservice, Module, type Type } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import {
  type ClientGrpc,
  type ClientProxy,
  ClientProxyFactory,
  GrpcMethod,
  type GrpcOptions,
  MessagePattern,
  type MicroserviceOptions,
  Transport,
} from "@nestjs/microservices";
import { bytes, Engine, service, unary } from "cinnabar";
import { CinnabarClient, CinnabarServer, CinnabarService } from "cinnabar-nest";
import { firstValueFrom, type Observable } from "rxjs";
import { z } from "zod";
import type { Contender, Serving } from "./contender.ts";
import { type SmallObject, smallProto } from "./payloads.ts";

/** Nest's own transports, and Cinnabar under Nest: with its client proxy, and with a client of Cinnabar. */
export type NestWay = "tcp" | "grpc" | "proxy" | "typed";

const message = z.object({ id: z.int(), name: z.string(), text: z.string() });
const Echo = service("bench.nest.v1", {
  echo: unary({ input: message, output: message }),
  bytes: unary({ input: bytes(), output: bytes() }),
});

@CinnabarService(Echo)
class CinnabarController {
  echo(input: SmallObject) {
    return input;
  }
  bytes(input: Uint8Array) {
    return input;
  }
}

/** JSON has no bytes. */
type Text = { readonly base64: string };

@Controller()
class TcpController {
  @MessagePattern("echo")
  echo(input: SmallObject) {
    return input;
  }
  @MessagePattern("bytes")
  bytes(input: Text) {
    return input;
  }
}

@Controller()
class GrpcController {
  @GrpcMethod("Echo", "Echo")
  echo(input: SmallObject) {
    return input;
  }
  @GrpcMethod("Echo", "Bytes")
  bytes(input: { readonly data: Uint8Array }) {
    return input;
  }
}

const grpcOptions: GrpcOptions["options"] = {
  package: "bench",
  packageDefinition: fromJSON({
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
  }),
  url: "127.0.0.1:0",
};

/** NestJS over one transport on the loopback, without guards, pipes and interceptors. */
export function nest(way: NestWay): Contender {
  const serve = async (): Promise<Serving> => {
    if (way === "tcp") {
      const options = { transport: Transport.TCP as const, options: { host: "127.0.0.1", port: 0 } };
      const app = await microservice(TcpController, options);
      const { port } = app.unwrap<import("node:net").Server>().address() as { readonly port: number };
      return { address: String(port), close: () => app.close() };
    }
    if (way === "grpc") {
      const port = await freePort();
      const options = { ...grpcOptions, url: `127.0.0.1:${port}` };
      const app = await microservice(GrpcController, { transport: Transport.GRPC, options });
      return { address: options.url, close: () => app.close() };
    }
    const strategy = new CinnabarServer({ listen: "net://127.0.0.1:0" });
    const app = await microservice(CinnabarController, { strategy });
    return { address: strategy.unwrap().urls[0] ?? "", close: () => app.close() };
  };
  return { serve, connect: (address) => connectors[way](address) };
}

const connectors: Readonly<Record<NestWay, Contender["connect"]>> = {
  async tcp(port) {
    const options = { host: "127.0.0.1", port: Number(port) };
    const client: ClientProxy = ClientProxyFactory.create({ transport: Transport.TCP, options });
    return {
      echo: (input) => firstValueFrom(client.send<SmallObject>("echo", input)),
      async bytes(input) {
        const text: Text = { base64: Buffer.from(input).toString("base64") };
        const { base64 } = await firstValueFrom(client.send<Text>("bytes", text));
        return new Uint8Array(Buffer.from(base64, "base64"));
      },
      close: async () => client.close(),
    };
  },
  async grpc(url) {
    const client = ClientProxyFactory.create({
      transport: Transport.GRPC,
      options: { ...grpcOptions, url },
    }) as unknown as ClientGrpc & { close(): void };
    const echo = client.getService<{
      echo(input: SmallObject): Observable<SmallObject>;
      bytes(input: { data: Uint8Array }): Observable<{ data: Uint8Array }>;
    }>("Echo");
    return {
      echo: (input) => firstValueFrom(echo.echo(input)),
      bytes: async (data) => new Uint8Array((await firstValueFrom(echo.bytes({ data }))).data),
      close: async () => client.close(),
    };
  },
  async proxy(url) {
    const client = new CinnabarClient({ url, services: [Echo] });
    await client.connect();
    return {
      echo: (input) => firstValueFrom(client.send<SmallObject>("bench.nest.v1/echo", input)),
      bytes: (input) => firstValueFrom(client.send<Uint8Array>("bench.nest.v1/bytes", input)),
      close: () => client.close(),
    };
  },
  async typed(url) {
    const engine = await Engine.open();
    const client = (await engine.connect(url)).client(Echo, { timeoutMs: 10_000 });
    return {
      echo: (input) => client.echo(input),
      bytes: (input) => client.bytes(input),
      close: () => engine.close(),
    };
  },
};

async function microservice(controller: Type, options: MicroserviceOptions): Promise<INestMicroservice> {
  class AppModule {}
  Module({ controllers: [controller] })(AppModule);
  const app = await NestFactory.createMicroservice<MicroserviceOptions>(AppModule, {
    ...options,
    logger: ["error", "warn"],
  });
  await app.listen();
  return app;
}

/** Nest does not say which port its gRPC server has taken. */
async function freePort(): Promise<number> {
  const { createServer } = await import("node:net");
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { readonly port: number };
  await new Promise((resolve) => server.close(resolve));
  return port;
}
