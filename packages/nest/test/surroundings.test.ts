import "reflect-metadata";
import {
  type CallHandler,
  type CanActivate,
  Catch,
  type DynamicModule,
  type ExecutionContext,
  type INestMicroservice,
  Module,
  type NestInterceptor,
  type PipeTransform,
  type Provider,
  type Type,
  UseFilters,
  UseGuards,
  UseInterceptors,
  UsePipes,
} from "@nestjs/common";
import { AbstractHttpAdapter, APP_GUARD, APP_INTERCEPTOR, APP_PIPE, NestFactory } from "@nestjs/core";
import { Payload } from "@nestjs/microservices";
import {
  type CallContext,
  type Client,
  Engine,
  oneWay,
  serverStream,
  service,
  unary,
} from "cinnabar/standard";
import { defer, map, of, throwError } from "rxjs";
import { beforeEach, describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { type CinnabarContext, CinnabarServer, CinnabarService } from "../src/index.ts";

const Texts = service("texts.v1", {
  echo: unary({ input: z.string(), output: z.string() }),
  spell: serverStream({ input: z.string(), output: z.string() }),
  note: oneWay({ input: z.string() }),
});

/** The methods of a controller; one that needs others overrides them. */
class Base {
  async echo(text: string, _call: CallContext): Promise<unknown> {
    return text;
  }
  async *spell(text: string) {
    yield* text;
  }
  note(_text: string): unknown {
    return undefined;
  }
}

/** Like `CinnabarService(Texts)`, for methods that return anything. */
const Controls = CinnabarService(Texts) as (target: Type) => void;

const seen: string[] = [];
beforeEach(() => void seen.splice(0));

class Guard implements CanActivate {
  canActivate(context: ExecutionContext) {
    seen.push(`guard ${context.switchToRpc().getData()}`);
    return true;
  }
}
class Interceptor implements NestInterceptor {
  intercept(context: ExecutionContext, next: CallHandler) {
    seen.push(`interceptor ${context.switchToRpc().getData()}`);
    return next.handle();
  }
}
class Pipe implements PipeTransform {
  transform(value: unknown) {
    if (typeof value === "string") seen.push(`pipe ${value}`);
    return value;
  }
}

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const list: T[] = [];
  for await (const item of items) list.push(item);
  return list;
}

let names = 0;
const strategyFor = () => new CinnabarServer({ listen: `mem://nest-surroundings-${++names}` });

function moduleOf(controllers: Type[], providers: Provider[] = []): DynamicModule {
  @Module({})
  class AppModule {}
  return { module: AppModule, controllers, providers };
}

async function clientOf(strategy: CinnabarServer): Promise<Client<typeof Texts>> {
  const engine = await Engine.open();
  onTestFinished(() => engine.close());
  return (await engine.connect(strategy.unwrap().urls[0] as string)).client(Texts);
}

async function serve(
  controllers: Type[],
  providers: Provider[] = [],
  prepare: (app: INestMicroservice) => unknown = () => {},
): Promise<Client<typeof Texts>> {
  const strategy = strategyFor();
  const app = await NestFactory.createMicroservice(moduleOf(controllers, providers), {
    strategy,
    logger: false,
  });
  onTestFinished(() => app.close());
  await prepare(app);
  await app.listen();
  return clientOf(strategy);
}

/** A controller with nothing of Nest. Each test has a class of its own. */
function bare(): Type {
  @Controls
  class Controller extends Base {}
  return Controller;
}

/** Each call meets it, not only the first. */
async function callsSeen(client: Client<typeof Texts>): Promise<string[]> {
  for (const text of ["a", "b", "c"]) expect(await client.echo(text)).toBe(text);
  return seen;
}

const each = (what: string) => ["a", "b", "c"].map((text) => `${what} ${text}`);

describe("what surrounds a controller", () => {
  it("is left out, after the first call, only where there is nothing", async () => {
    const isInNest: boolean[] = [];
    @Controls
    class Controller extends Base {
      override async echo(text: string) {
        isInNest.push(/rpc-context-creator/.test(new Error().stack ?? ""));
        return text;
      }
    }
    await callsSeen(await serve([Controller]));
    expect(isInNest).toEqual([true, false, false]);
  });

  it.each([
    ["guard", UseGuards(Guard)],
    ["interceptor", UseInterceptors(Interceptor)],
    ["pipe", UsePipes(Pipe)],
  ])("is a %s of the class or of the method", async (what, decorator) => {
    @Controls
    @decorator
    class Inner extends Base {}
    expect(await callsSeen(await serve([Inner]))).toEqual(each(what));
    seen.splice(0);
    @decorator
    @Controls
    class Outer extends Base {}
    expect(await callsSeen(await serve([Outer]))).toEqual(each(what));
    seen.splice(0);
    @Controls
    class OfMethod extends Base {
      @decorator
      override async echo(text: string) {
        return text;
      }
    }
    expect(await callsSeen(await serve([OfMethod]))).toEqual(each(what));
  });

  it.each([
    ["guard", APP_GUARD, Guard, (app: INestMicroservice) => app.useGlobalGuards(new Guard())],
    [
      "interceptor",
      APP_INTERCEPTOR,
      Interceptor,
      (app: INestMicroservice) => app.useGlobalInterceptors(new Interceptor()),
    ],
    ["pipe", APP_PIPE, Pipe, (app: INestMicroservice) => app.useGlobalPipes(new Pipe())],
  ])("is a %s of the application", async (what, provide, useClass, use) => {
    expect(await callsSeen(await serve([bare()], [], use))).toEqual(each(what));
    seen.splice(0);
    expect(await callsSeen(await serve([bare()], [{ provide, useClass }]))).toEqual(each(what));
  });

  it("is a guard of one microservice in an application that serves HTTP, too", async () => {
    abstract class NoHttp extends AbstractHttpAdapter {
      close() {}
      initHttpServer() {}
      getType = () => "none";
    }
    const adapter = new (NoHttp as unknown as new () => AbstractHttpAdapter)();
    const app = await NestFactory.create(moduleOf([bare()]), adapter, { logger: false });
    const strategy = strategyFor();
    const microservice = app.connectMicroservice({ strategy }, { deferInitialization: true });
    onTestFinished(() => microservice.close());
    microservice.useGlobalGuards(new Guard());
    await app.startAllMicroservices();
    expect(await callsSeen(await clientOf(strategy))).toEqual(each("guard"));
  });

  it("is what other code has wrapped around the method", async () => {
    const Controller = bare();
    const wrap = (holder: { echo: (...args: unknown[]) => unknown }) => {
      const { echo } = holder;
      holder.echo = function (...args) {
        seen.push(`wrapped ${args[0]}`);
        return echo.apply(this, args);
      };
      for (const key of Reflect.getMetadataKeys(echo))
        Reflect.defineMetadata(key, Reflect.getMetadata(key, echo), holder.echo);
    };
    wrap(Controller.prototype);
    expect(await callsSeen(await serve([Controller]))).toEqual(each("wrapped"));
  });

  it("is an exception filter, for each way to fail of each call", async () => {
    @Catch(RangeError)
    class Filter {
      catch(error: RangeError, host: ExecutionContext) {
        const context = host.switchToRpc().getContext<CinnabarContext>();
        seen.push(`${error.message} ${host.switchToRpc().getData()} ${context.getPattern()}`);
        return throwError(() => ({ code: "out_of_range", message: "filtered" }));
      }
    }
    let calls = 0;
    @Controls
    @UseFilters(Filter)
    class Controller extends Base {
      override echo(how: string): Promise<unknown> {
        calls++;
        if (how === "thrown") throw new RangeError(how);
        if (how === "rejected") return Promise.reject(new RangeError(how));
        if (how === "later") return Promise.resolve(throwError(() => new RangeError(how)));
        if (how === "observable") return throwError(() => new RangeError(how)) as never;
        if (how === "value") return of(how) as never;
        // biome-ignore lint/suspicious/noThenProperty: a promise of another library
        return { then: (take: (text: string) => void) => take(how) } as never;
      }
    }
    const client = await serve([Controller]);
    const failing = ["thrown", "rejected", "later", "observable"];
    for (let round = 0; round < 2; round++) {
      for (const how of failing) await expect(client.echo(how)).rejects.toThrow("[out_of_range] filtered");
      for (const how of ["value", "thenable"]) expect(await client.echo(how)).toBe(how);
    }
    expect(seen).toEqual([...failing, ...failing].map((how) => `${how} ${how} texts.v1/echo`));
    // Nothing runs twice.
    expect(calls).toBe(12);
  });
});

/** A pipe for texts, as `ParseIntPipe` is one for numbers. */
class Strict implements PipeTransform {
  transform(value: unknown) {
    if (typeof value !== "string") throw new TypeError(`no text: ${typeof value}`);
    return value.toUpperCase();
  }
}

/** Begins the pipeline when its result is subscribed to. Nest 11 has no such hooks. */
function addHook(app: INestMicroservice): void {
  const { applicationConfig } = app as unknown as {
    applicationConfig: { registerPreRequestHook?(hook: (_: unknown, next: () => unknown) => unknown): void };
  };
  applicationConfig.registerPreRequestHook?.((_, next) => next());
}

describe("a pipe that refuses anything but the input", () => {
  const none = (target: Type) => void target;
  it.each([
    ["the class", UsePipes(Strict), [], () => {}],
    ["the application", none, [], (app: INestMicroservice) => app.useGlobalPipes(new Strict())],
    ["the application, by injection", none, [{ provide: APP_PIPE, useClass: Strict }], () => {}],
    [
      "the application, with a hook",
      none,
      [],
      (app: INestMicroservice) => {
        app.useGlobalPipes(new Strict());
        addHook(app);
      },
    ],
  ] as const)("sees no context: a pipe of %s", async (_, decorator, providers, prepare) => {
    const calls: string[] = [];
    class Methods {
      async echo(text: string): Promise<unknown> {
        return text === "FAIL" ? throwError(() => new RangeError()) : text;
      }
      async *spell(text: string) {
        yield* text;
      }
      note(text: string, call: CallContext) {
        calls.push(`${text} ${call.method}`);
      }
    }
    for (const decorators of [
      [Controls, decorator],
      [decorator, Controls],
    ]) {
      class Controller extends Methods {}
      for (const each of decorators) each(Controller);
      const client = await serve([Controller], [...providers], prepare);
      for (const text of ["a", "b"]) expect(await client.echo(text)).toBe(text.toUpperCase());
      expect(await client.spell("ab").toArray()).toEqual(["A", "B"]);
      await expect(client.echo("fail")).rejects.toThrow("internal");
      await client.note("c");
    }
    await expect.poll(() => calls).toEqual(["C texts.v1/note", "C texts.v1/note"]);
  });

  it("sees no context where a subclass has it", async () => {
    @UsePipes(Strict)
    class Controller extends (bare() as new () => Base) {}
    const client = await serve([Controller]);
    for (const text of ["a", "b"]) expect(await client.echo(text)).toBe(text.toUpperCase());
    expect(await client.spell("ab").toArray()).toEqual(["A", "B"]);
  });

  it("leaves the items of a stream to interceptors and filters", async () => {
    class Marks implements NestInterceptor {
      intercept(_: ExecutionContext, next: CallHandler) {
        return next.handle().pipe(map((item) => `${item}!`));
      }
    }
    @Catch(RangeError)
    class Filter {
      catch() {
        return throwError(() => ({ code: "out_of_range", message: "filtered" }));
      }
    }
    @Controls
    class Controller extends Base {
      @UsePipes(Strict)
      @UseInterceptors(Marks)
      @UseFilters(Filter)
      override async *spell(text: string) {
        yield* text;
        if (text === "AB") throw new RangeError("too long");
      }
    }
    @Controls
    class Declared extends Base {
      @UsePipes(Strict)
      @UseInterceptors(Marks)
      @UseFilters(Filter)
      override async *spell(@Payload() text: string) {
        yield* text;
        if (text === "AB") throw new RangeError("too long");
      }
    }
    for (const controller of [Controller, Declared]) {
      const client = await serve([controller]);
      expect(await client.spell("a").toArray()).toEqual(["A!"]);
      await expect(client.spell("ab").toArray()).rejects.toThrow("[out_of_range] filtered");
    }
  });

  it("lets a method call itself, at once, later and in an Observable", async () => {
    @Controls
    @UsePipes(Strict)
    class Controller extends Base {
      override echo(text: string): Promise<unknown> {
        if (text === "") return of("") as never;
        return defer(() => this.echo(text.slice(1)) as never).pipe(
          map((rest) => `${rest}${text[0]}`),
        ) as never;
      }
      override async *spell(text: string): AsyncGenerator<string> {
        if (text === "") return;
        yield text[0] as string;
        yield* this.spell(text.slice(1));
      }
    }
    const client = await serve([Controller]);
    for (let round = 0; round < 2; round++) {
      expect(await client.echo("abc")).toBe("CBA");
      expect(await client.spell("abc").toArray()).toEqual(["A", "B", "C"]);
    }
  });
});

describe("a method of a controller", () => {
  it("is as it was declared when the program itself calls it", async () => {
    @Controls
    class Controller extends Base {
      override async echo(text: string, call: CallContext) {
        const letters = await all(this.spell(text));
        return `${letters.join(" ")} ${call.method}`;
      }
    }
    const controller = new Controller();
    expect(await all(controller.spell("ab"))).toEqual(["a", "b"]);
    expect(await controller.echo("ab", { method: "test" } as CallContext)).toBe("a b test");
    const client = await serve([Controller]);
    for (let round = 0; round < 2; round++) expect(await client.echo("ab")).toBe("a b texts.v1/echo");
  });

  it("has the input and the call also where its class inherits from a controller", async () => {
    const Parent = bare() as new () => Base;
    @Controls
    class Child extends Parent {
      override async echo(text: string, call: CallContext) {
        return `${text} ${call.method}`;
      }
    }
    const client = await serve([Child]);
    for (let round = 0; round < 2; round++) {
      expect(await client.echo("a")).toBe("a texts.v1/echo");
      expect(await client.spell("ab").toArray()).toEqual(["a", "b"]);
    }
  });
});
