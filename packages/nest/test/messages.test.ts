import "reflect-metadata";
import type { AddressInfo, Server } from "node:net";
import { Controller, Module, NotFoundException, type Type } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import {
  ClientProxy,
  ClientsModule,
  EventPattern,
  MessagePattern,
  type MicroserviceOptions,
  Payload,
  Transport,
} from "@nestjs/microservices";
import { type CallContext, Engine, implement, type Middleware, RpcError, service } from "cinnabar/standard";
import {
  firstValueFrom,
  from,
  lastValueFrom,
  type Observable,
  Subject,
  take,
  tap,
  timeout,
  timer,
  toArray,
} from "rxjs";
import { describe, expect, it, onTestFinished } from "vitest";
import {
  Call,
  CinnabarClient,
  CinnabarExceptionFilter,
  CinnabarServer,
  cinnabarRecord,
} from "../src/index.ts";
import { Numbers } from "./services.test-support.ts";

let names = 0;
const address = () => `mem://nest-messages-${++names}`;

async function serve(
  controllers: Type[],
  transport: MicroserviceOptions,
  filters: CinnabarExceptionFilter[] = [],
) {
  @Module({ controllers })
  class AppModule {}
  const app = await NestFactory.createMicroservice<MicroserviceOptions>(AppModule, {
    ...transport,
    logger: false,
  });
  app.useGlobalFilters(...filters);
  onTestFinished(() => app.close());
  await app.listen();
  return app;
}

function clientOf(url: string, options: object = {}): CinnabarClient {
  const client = new CinnabarClient({ url, ...options });
  onTestFinished(() => client.close());
  return client;
}

/** The sample of Nest's documentation: its controller and its client know no transport. */
function sample() {
  const events: unknown[] = [];
  @Controller()
  class MathController {
    @MessagePattern({ cmd: "sum" })
    accumulate(data: number[]): number {
      return data.reduce((a, b) => a + b, 0);
    }
    @MessagePattern({ cmd: "stream" })
    stream(data: number[]): Observable<number> {
      return from(data);
    }
    @EventPattern("user_created")
    handleUserCreated(data: Record<string, unknown>) {
      events.push(data);
    }
  }
  return { MathController, events };
}

const portOf = (server: Server) => (server.address() as AddressInfo).port;

async function callsOfSample(client: {
  send(pattern: unknown, data: unknown): Observable<unknown>;
  emit(pattern: unknown, data: unknown): Observable<unknown>;
}) {
  await lastValueFrom(client.emit("user_created", { name: "Ada" }), { defaultValue: undefined });
  return [
    await firstValueFrom(client.send({ cmd: "sum" }, [1, 2, 3])),
    await firstValueFrom(client.send({ cmd: "stream" }, [1, 2, 3]).pipe(toArray())),
  ];
}

describe("Nest's sample of a microservice", () => {
  it("runs with only the transport exchanged", async () => {
    const { MathController, events } = sample();
    const url = address();
    const tcp = { transport: Transport.TCP as const, options: { host: "127.0.0.1", port: 0 } };
    for (const server of [{ strategy: new CinnabarServer({ listen: url }) }, tcp]) {
      events.length = 0;
      const microservice = await serve([MathController], server);
      const client =
        server === tcp
          ? { ...tcp, options: { ...tcp.options, port: portOf(microservice.unwrap<Server>()) } }
          : { customClass: CinnabarClient, options: { url } };
      @Module({ imports: [ClientsModule.register([{ name: "MATH_SERVICE", ...client }])] })
      class ClientModule {}
      const app = await NestFactory.createApplicationContext(ClientModule, { logger: false });
      const proxy = app.get("MATH_SERVICE");
      expect(await callsOfSample(proxy)).toEqual([6, [1, 2, 3]]);
      await expect.poll(() => events).toEqual([{ name: "Ada" }]);
      await proxy.close();
      await app.close();
    }
  });
});

describe("patterns without a contract", () => {
  it("carry values that JSON has not, deadlines and metadata", async () => {
    @Controller()
    class C {
      @MessagePattern("types")
      types(@Payload() data: unknown) {
        return data;
      }
      @MessagePattern("call")
      call(@Payload() _: unknown, @Call() call: CallContext) {
        return [call.metadata.get("x-tenant"), call.timeLeftMs > 0 && call.timeLeftMs <= 60_000];
      }
      @MessagePattern("nothing")
      nothing() {}
    }
    const url = address();
    await serve([C], { strategy: new CinnabarServer({ listen: url }) });
    const client = clientOf(url);
    const values = { at: new Date(5), big: 2n ** 60n, bytes: new Uint8Array([1, 2]) };
    expect(await firstValueFrom(client.send("types", values))).toEqual(values);
    const record = cinnabarRecord(1, { timeoutMs: 60_000, metadata: { "x-tenant": "a" } });
    expect(await firstValueFrom(client.send("call", record))).toEqual(["a", true]);
    expect(await lastValueFrom(client.send("nothing", 1), { defaultValue: "none" })).toBe("none");
  });

  it("cancel at the server when the caller unsubscribes", async () => {
    let isOver = 0;
    const signals: AbortSignal[] = [];
    @Controller()
    class C {
      @MessagePattern("ticks")
      ticks(@Payload() _: unknown, @Call() call: CallContext) {
        signals.push(call.signal);
        return timer(0, 1).pipe(tap({ finalize: () => isOver++ }));
      }
      @MessagePattern("never")
      never(@Payload() _: unknown, @Call() call: CallContext) {
        signals.push(call.signal);
        return new Promise(() => {});
      }
    }
    const url = address();
    await serve([C], { strategy: new CinnabarServer({ listen: url }) });
    const client = clientOf(url);
    expect(await lastValueFrom(client.send("ticks", 0).pipe(take(3), toArray()))).toEqual([0, 1, 2]);
    await expect.poll(() => isOver).toBe(1);
    await expect(firstValueFrom(client.send("never", 0).pipe(timeout(20)))).rejects.toThrow("Timeout");
    await expect.poll(() => signals.map(({ aborted }) => aborted)).toEqual([true, true]);
  });

  it("fail by name where no handler has them, and never reach a method of a contract", async () => {
    const url = address();
    const engine = await Engine.open({ listen: address(), serve: [] });
    onTestFinished(() => engine.close());
    const { MathController } = sample();
    await serve([MathController], { strategy: new CinnabarServer({ listen: url }) });
    const client = clientOf(url);
    const unknown = await firstValueFrom(client.send("numbers.v1/sum", [1])).catch((error: unknown) => error);
    expect(unknown).toMatchObject({
      code: "unimplemented",
      message: expect.stringContaining("no handler here"),
    });
    // An event is no message.
    expect(await firstValueFrom(client.send("user_created", 1)).catch((error) => error.code)).toBe(
      "unimplemented",
    );
  });

  it("pass HTTP exceptions on with the filter, and hide them with a line in the log without it", async () => {
    @Controller()
    class C {
      @MessagePattern("find")
      find() {
        throw new NotFoundException("no user 7");
      }
    }
    const [hidden, passed] = [address(), address()];
    const app = await serve([C], { strategy: new CinnabarServer({ listen: hidden }) });
    const warned: unknown[] = [];
    await serve([C], { strategy: new CinnabarServer({ listen: passed }) }, [new CinnabarExceptionFilter()]);
    app.useLogger({ log() {}, error() {}, warn: (line: unknown) => warned.push(line) });
    const failure = (url: string) =>
      firstValueFrom(clientOf(url).send("find", 1)).catch((error: RpcError) => error);
    expect(await failure(hidden)).toMatchObject({
      code: "internal",
      message: "[internal] the handler failed",
    });
    expect(warned).toEqual([expect.stringContaining('the handler of "find" failed')]);
    expect(await failure(passed)).toMatchObject({ code: "not_found", message: "[not_found] no user 7" });
  });
});

describe("a client proxy with contracts", () => {
  async function numbers(services = [Numbers]) {
    const seen: unknown[] = [];
    const implementation = implement(Numbers, {
      sum: (values) => values.reduce((a, b) => a + b, 0),
      fail: (why, call) => call.fail("Refused", { why }),
      wait: () => new Promise(() => {}),
      nothing: () => {},
      async *count(to) {
        for (let n = 0; n < to; n++) yield n;
      },
      async total(items, call) {
        let sum = 0;
        for await (const item of items) sum += item;
        return `${call.input} ${sum}`;
      },
      async *doubled(items) {
        for await (const item of items) yield 2 * item;
      },
      note: (text) => void seen.push(text),
    });
    const url = address();
    const engine = await Engine.open({ listen: url, serve: [implementation] });
    onTestFinished(() => engine.close());
    return { client: clientOf(url, { services }), seen, url };
  }

  it("calls every kind of method of a server that is no Nest", async () => {
    const { client, seen } = await numbers();
    expect(await firstValueFrom(client.send("numbers.v1/sum", [1, 2]))).toBe(3);
    expect(await firstValueFrom(client.send("numbers.v1/nothing", {}), { defaultValue: "none" })).toBe(
      "none",
    );
    expect(await lastValueFrom(client.send("numbers.v1/count", 3).pipe(toArray()))).toEqual([0, 1, 2]);
    const items = cinnabarRecord([1, 2], { input: "sum" });
    expect(await firstValueFrom(client.send("numbers.v1/total", items))).toBe("sum 3");
    expect(await lastValueFrom(client.send("numbers.v1/doubled", [1, 2]).pipe(toArray()))).toEqual([2, 4]);
    await lastValueFrom(client.emit("numbers.v1/note", "x"), { defaultValue: undefined });
    await expect.poll(() => seen).toEqual(["x"]);
  });

  it("gives declared errors with their data", async () => {
    const { client } = await numbers();
    const error = await firstValueFrom(client.send("numbers.v1/fail", "so")).catch(
      (thrown: unknown) => thrown,
    );
    expect(error).toBeInstanceOf(RpcError);
    expect(error).toMatchObject({ reason: "Refused", data: { why: "so" } });
  });

  it("is cold, calls once for each subscription, and connects again after close", async () => {
    const { client } = await numbers();
    const sum = client.send("numbers.v1/sum", [1, 2]);
    expect([await firstValueFrom(sum), await firstValueFrom(sum)]).toEqual([3, 3]);
    await client.close();
    expect(await firstValueFrom(client.send("numbers.v1/sum", [4]))).toBe(4);
  });

  it("ends only the call that its subscriber leaves", async () => {
    const { client } = await numbers();
    const sum = () => firstValueFrom(client.send("numbers.v1/sum", [1, 2]));
    await client.connect();
    const over = client.send("numbers.v1/sum", [1]).subscribe();
    expect(await sum()).toBe(3);
    const failures: unknown[] = [];
    const waiting = client.send("numbers.v1/wait", 0).subscribe({ error: (error) => failures.push(error) });
    over.unsubscribe();
    expect(await sum()).toBe(3);
    expect(failures).toEqual([]);
    waiting.unsubscribe();
    for (let n = 0; n < 3; n++) expect(await sum()).toBe(3);
  });

  it.each(["the client", "its engine", "a shared engine"])(
    "does not end what middleware of %s has left behind",
    async (where) => {
      const [release, arrived, left] = [new Subject<string>(), new Subject<void>(), new Subject<void>()];
      const [released, hasArrived, hasLeft] = [release, arrived, left].map((each) =>
        firstValueFrom(each as Subject<unknown>, { defaultValue: "fresh" }),
      );
      const Waits = service("waits.v1", { wait: Numbers.methods.wait });
      const url = address();
      const server = await Engine.open({
        listen: url,
        serve: [
          implement(Waits, {
            wait(ms, { signal }) {
              if (ms === 0) return released as Promise<string>;
              signal.addEventListener("abort", () => left.complete());
              arrived.complete();
              return new Promise<string>(() => {});
            },
          }),
        ],
      });
      onTestFinished(() => server.close());
      let refreshed: Promise<unknown> | undefined;
      const middleware: Middleware[] = [
        (_, next) => {
          const fresh = next();
          if (refreshed !== undefined) return fresh;
          refreshed = Promise.resolve(fresh).catch((error: unknown) => error);
          return "cached";
        },
      ];
      const ofEngine = { middleware: { client: middleware } };
      const shared = where === "a shared engine" ? await Engine.open(ofEngine) : undefined;
      onTestFinished(() => shared?.close());
      const client = clientOf(url, {
        services: [Waits],
        ...(where === "the client" ? { client: { middleware } } : { engine: shared ?? ofEngine }),
      });
      expect(await firstValueFrom(client.send("waits.v1/wait", 0))).toBe("cached");
      const other = client.send("waits.v1/wait", 1).subscribe();
      await hasArrived;
      other.unsubscribe();
      await hasLeft;
      release.complete();
      expect(await refreshed).toBe("fresh");
    },
  );

  it("rejects connect when nobody listens, as health checks expect, and can try again", async () => {
    const client = clientOf("mem://nobody-is-here");
    await expect(client.connect()).rejects.toMatchObject({ code: "unavailable" });
    await expect(client.connect()).rejects.toMatchObject({ code: "unavailable" });
  });

  it("gives the peer for typed clients", async () => {
    const { client } = await numbers();
    const typed = (await client.connect()).client(Numbers);
    expect(await typed.sum([1, 2])).toBe(3);
    expect(client.unwrap()).toBe(await client.connect());
  });

  it("refuses options that it does not know", () => {
    expect(() => new CinnabarClient({ url: "mem://x", urls: [] } as never)).toThrow("urls");
    expect(() => new CinnabarServer({ listen: "mem://x", graceMs: -1 })).toThrow("graceMs");
  });

  // Nest 11 has no such hook.
  it.runIf("setOnDispatchHook" in ClientProxy.prototype)(
    "sends the metadata that Nest's instrumentation sets",
    async () => {
      const seen: unknown[] = [];
      @Controller()
      class C {
        @MessagePattern("trace")
        trace(@Payload() _: unknown, @Call() call: CallContext) {
          seen.push(call.metadata.get("x-trace"), call.metadata.get("x-own"));
        }
      }
      const url = address();
      await serve([C], { strategy: new CinnabarServer({ listen: url }) });
      const client = clientOf(url);
      client.setOnDispatchHook((packet) => {
        packet.metadata = { "x-trace": "t1", "x-own": "hook" };
      });
      const record = cinnabarRecord(1, { metadata: { "x-own": "mine" } });
      await lastValueFrom(client.send("trace", record), { defaultValue: undefined });
      expect(seen).toEqual(["t1", "mine"]);
    },
  );
});

it("a client whose options are wrong leaves no connection at an engine of another owner", async () => {
  const [server, engine] = [await Engine.open({ listen: "mem://nest-wrong" }), await Engine.open()];
  onTestFinished(async () => {
    await engine.close();
    await server.close();
  });
  const client = new CinnabarClient({
    ...{ url: "mem://nest-wrong", engine, services: [Numbers], client: { timeoutMs: -1 } },
  });
  await expect(client.connect()).rejects.toThrow("timeoutMs");
  expect(engine.peers()).toEqual([]);
  await client.close();
});
