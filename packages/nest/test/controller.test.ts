import "reflect-metadata";
import {
  BadRequestException,
  type CallHandler,
  type CanActivate,
  Catch,
  type ExecutionContext,
  ForbiddenException,
  HttpException,
  Inject,
  Injectable,
  InternalServerErrorException,
  Module,
  type NestInterceptor,
  NotFoundException,
  type PipeTransform,
  Scope,
  type Type,
  UseFilters,
  UseGuards,
  UseInterceptors,
  UsePipes,
} from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { Payload, RpcException } from "@nestjs/microservices";
import {
  type CallContext,
  type CallContextFor,
  Engine,
  RpcError,
  type StreamContextFor,
} from "cinnabar/standard";
import { map, type Observable, of, range, tap, throwError, timer } from "rxjs";
import { describe, expect, it, onTestFinished } from "vitest";
import {
  Call,
  type CinnabarContext,
  CinnabarServer,
  type CinnabarServerOptions,
  CinnabarService,
} from "../src/index.ts";
import { Numbers } from "./services.test-support.ts";

let names = 0;

/** A microservice of these controllers, and a client of it that is no Nest. */
async function serve(
  controllers: Type[],
  options: Partial<CinnabarServerOptions> = {},
  providers: Type[] = [],
) {
  @Module({ controllers, providers })
  class AppModule {}
  const strategy = new CinnabarServer({ listen: `mem://nest-controller-${++names}`, ...options });
  const app = await NestFactory.createMicroservice(AppModule, { strategy, logger: false });
  onTestFinished(() => app.close());
  const [url] = (await app.listen()) as unknown as string[];
  const engine = await Engine.open();
  onTestFinished(() => engine.close());
  const client = (await engine.connect(url as string)).client(Numbers);
  return { app, client, strategy };
}

type Failed = CallContextFor<(typeof Numbers.methods)["fail"], CallContext>;
type Total = StreamContextFor<(typeof Numbers.methods)["total"], CallContext>;

/** The methods that a test does not use. */
class Base {
  sum(numbers: number[]): number | Observable<number> {
    return numbers.reduce((a, b) => a + b, 0);
  }
  async fail(_how: string, _call: Failed): Promise<string | Observable<string>> {
    return "";
  }
  async wait(_ms: number, _call: CallContext): Promise<string> {
    return "";
  }
  nothing(): void {}
  count(to: number, _call: CallContext): AsyncIterable<number> | Observable<number> {
    return range(0, to);
  }
  async total(items: AsyncIterable<number>, call: Total): Promise<string> {
    let sum = 0;
    for await (const item of items) sum += item;
    return `${call.input} ${sum}`;
  }
  async *doubled(items: AsyncIterable<number>): AsyncGenerator<number> {
    for await (const item of items) yield 2 * item;
  }
  note(_text: string): unknown {
    return undefined;
  }
}

async function failure(promise: Promise<unknown>): Promise<Partial<RpcError>> {
  const error = await promise.then(
    (value) => expect.fail(`it answered ${String(value)}`),
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(RpcError);
  const { code, message, reason, data } = error as RpcError;
  return {
    code,
    message: message.replace(`[${code}] `, ""),
    ...(reason === undefined ? {} : { reason, data }),
  };
}

describe("a controller of a contract", () => {
  it("answers a client of Cinnabar: every kind of method", async () => {
    const notes: string[] = [];
    @CinnabarService(Numbers)
    class Controller extends Base {
      override note(text: string) {
        notes.push(text);
      }
    }
    const { client } = await serve([Controller]);
    expect(await client.sum([1, 2, 3])).toBe(6);
    expect(await client.nothing()).toBeUndefined();
    expect(await client.count(3).toArray()).toEqual([0, 1, 2]);
    expect(await client.total("sum", [1, 2, 3])).toBe("sum 6");
    expect(await client.doubled([1, 2]).toArray()).toEqual([2, 4]);
    await client.note("here");
    await expect.poll(() => notes).toEqual(["here"]);
  });

  it("has guards, interceptors, pipes and filters around it, which see the call", async () => {
    const seen: string[] = [];
    class Guard implements CanActivate {
      canActivate(context: ExecutionContext) {
        const rpc = context.switchToRpc();
        const call = rpc.getContext<CinnabarContext>();
        seen.push(`guard ${context.getType()} ${call.getPattern()} ${call.call.metadata.get("x-user")}`);
        return rpc.getData() !== "no";
      }
    }
    class Interceptor implements NestInterceptor {
      intercept(_: ExecutionContext, next: CallHandler) {
        return next.handle().pipe(
          map((text) => `${text}!`),
          tap((text) => seen.push(`interceptor ${text}`)),
        );
      }
    }
    class Pipe implements PipeTransform {
      transform(value: unknown, { type }: { type: string }) {
        return type === "body" ? `piped ${value}` : value;
      }
    }
    @Catch(RangeError)
    class Filter {
      catch(error: RangeError) {
        return throwError(() => ({ code: "out_of_range", message: error.message }));
      }
    }
    @CinnabarService(Numbers)
    @UseFilters(Filter)
    class Controller extends Base {
      @UseGuards(Guard)
      @UseInterceptors(Interceptor)
      @UsePipes(Pipe)
      override async fail(how: string, _call: Failed) {
        if (how === "piped range") throw new RangeError("too far");
        return how;
      }
    }
    const { client } = await serve([Controller]);
    expect(await client.fail("yes", { metadata: { "x-user": "ada" } })).toBe("piped yes!");
    expect(seen).toEqual(["guard rpc numbers.v1/fail ada", "interceptor piped yes!"]);
    expect(await failure(client.fail("no"))).toEqual({
      code: "permission_denied",
      message: "Forbidden resource",
    });
    expect(await failure(client.fail("range"))).toEqual({
      code: "out_of_range",
      message: "too far",
    });
  });

  it("has parameters by decorators where it says so", async () => {
    class Double implements PipeTransform {
      transform(value: number) {
        return 2 * value;
      }
    }
    @CinnabarService(Numbers)
    class Controller extends Base {
      override async *count(@Payload(Double) to: number, @Call() call: CallContext): AsyncGenerator<number> {
        expect(call.method).toBe("numbers.v1/count");
        for (let n = 0; n < to; n++) yield n;
      }
    }
    const { client } = await serve([Controller]);
    expect(await client.count(2).toArray()).toEqual([0, 1, 2, 3]);
  });

  it("is injected, also when each request has its own", async () => {
    @Injectable({ scope: Scope.REQUEST })
    class Adder {
      add(numbers: number[]) {
        return numbers.reduce((a, b) => a + b, 0);
      }
    }
    @CinnabarService(Numbers)
    class Controller extends Base {
      static made = 0;
      readonly #adder: Adder;
      constructor(@Inject(Adder) adder: Adder) {
        super();
        this.#adder = adder;
        Controller.made++;
      }
      override sum(numbers: number[]) {
        return this.#adder.add(numbers);
      }
    }
    const { client } = await serve([Controller], {}, [Adder]);
    const before = Controller.made;
    expect([await client.sum([1, 2]), await client.sum([3])]).toEqual([3, 3]);
    expect(Controller.made - before).toBe(2);
  });
});

describe("a handler that fails", () => {
  const ways: Record<string, (call: Failed) => unknown> = {
    declared: (call) => call.fail("Refused", { why: "so" }),
    "declared by RpcException": () => {
      throw new RpcException({ reason: "Refused", data: { why: "rpc" }, message: "no" });
    },
    "undeclared reason": () => {
      throw new RpcException({ reason: "Other", data: { secret: 1 }, message: "other" });
    },
    RpcError: () => {
      throw new RpcError({ code: "aborted", message: "again" });
    },
    "RpcException text": () => {
      throw new RpcException("for the caller");
    },
    "RpcException with a code": () => {
      throw new RpcException({ code: "not_found", message: "no user" });
    },
    "RpcException without meaning": () => {
      throw new RpcException({ secret: "s3cret" });
    },
    "HTTP 404": () => {
      throw new NotFoundException("no user");
    },
    "HTTP 400 of a validation": () => {
      throw new BadRequestException(["a is missing", "b is no number"]);
    },
    "HTTP 403": () => {
      throw new ForbiddenException();
    },
    "HTTP 500": () => {
      throw new InternalServerErrorException("s3cret");
    },
    "HTTP 418": () => {
      throw new HttpException("a teapot", 418);
    },
    Error: () => {
      throw new Error("s3cret");
    },
    "a text": () => {
      throw "s3cret";
    },
    undefined: () => {
      throw undefined;
    },
    "a rejection": () => Promise.reject(new Error("s3cret")),
    "an Observable's error": () => throwError(() => new Error("s3cret")),
    "an Observable's HTTP error": () => throwError(() => new NotFoundException("no such thing")),
    "two values": () => of("a", "b"),
  };
  const expected: Record<string, Partial<RpcError>> = {
    declared: {
      code: "failed_precondition",
      message: "declared error Refused",
      reason: "Refused",
      data: { why: "so" },
    },
    "declared by RpcException": {
      code: "failed_precondition",
      message: "no",
      reason: "Refused",
      data: { why: "rpc" },
    },
    "undeclared reason": { code: "failed_precondition", message: "other" },
    RpcError: { code: "aborted", message: "again" },
    "RpcException text": { code: "unknown", message: "for the caller" },
    "RpcException with a code": { code: "not_found", message: "no user" },
    "HTTP 404": { code: "not_found", message: "no user" },
    "HTTP 400 of a validation": {
      code: "invalid_argument",
      message: "a is missing; b is no number",
    },
    "HTTP 403": { code: "permission_denied", message: "Forbidden" },
    "HTTP 418": { code: "failed_precondition", message: "a teapot" },
    "an Observable's HTTP error": { code: "not_found", message: "no such thing" },
  };
  const internal = { code: "internal", message: "the handler failed" };

  it("gives the caller what is meant for it, and no more; everything else is logged", async () => {
    @CinnabarService(Numbers)
    class Controller extends Base {
      override async fail(how: string, call: Failed) {
        return (await ways[how]?.(call)) as string;
      }
    }
    const logged: string[] = [];
    const { client, app } = await serve([Controller]);
    const log = (...parts: unknown[]) => {
      logged.push(parts.map((part) => (part instanceof Error ? part.message : String(part))).join(" "));
    };
    app.useLogger({ log() {}, error: log, warn: log });
    for (const way of Object.keys(ways)) {
      logged.length = 0;
      expect([way, await failure(client.fail(way))]).toEqual([way, expected[way] ?? internal]);
      expect([way, logged.length > 0]).toEqual([way, !(way in expected)]);
    }
  });

  it("gives a stream's caller the items before the failure, and filters see it", async () => {
    const seen: unknown[] = [];
    @Catch(RangeError)
    class Filter {
      catch(error: RangeError) {
        seen.push(error.message);
        return throwError(() => new RpcError({ code: "out_of_range", message: "filtered" }));
      }
    }
    @CinnabarService(Numbers)
    @UseFilters(Filter)
    class Controller extends Base {
      override async *count(to: number) {
        yield to;
        throw new RangeError("s3cret");
      }
    }
    const { client } = await serve([Controller]);
    const items: number[] = [];
    const reading = (async () => {
      for await (const item of client.count(5)) items.push(item);
    })();
    expect(await failure(reading)).toMatchObject({ code: "out_of_range", message: "filtered" });
    expect([items, seen]).toEqual([[5], ["s3cret"]]);
  });

  it("is logged when nobody waits for an answer", async () => {
    @CinnabarService(Numbers)
    class Controller extends Base {
      override note(how: string): unknown {
        if (how === "http") throw new NotFoundException("no such note");
        return throwError(() => new Error("later"));
      }
    }
    const failed: unknown[] = [];
    const { client } = await serve([Controller], {
      onHandlerError: (error) => failed.push((error as Error).message),
    });
    await client.note("http");
    await expect.poll(() => failed).toEqual(["[not_found] no such note"]);
    await client.note("observable");
    await expect.poll(() => failed.length).toBe(2);
  });
});

describe("a call to a controller", () => {
  it("ends with its deadline and with its caller, and the handler sees it", async () => {
    const reasons: unknown[] = [];
    @CinnabarService(Numbers)
    class Controller extends Base {
      override wait(_ms: number, call: CallContext) {
        return new Promise<string>((_, reject) => {
          call.signal.addEventListener("abort", () => {
            reasons.push((call.signal.reason as RpcError).code);
            reject(call.signal.reason);
          });
          if (_ms === 0) abort.abort();
        });
      }
    }
    const abort = new AbortController();
    const { client } = await serve([Controller]);
    expect(await failure(client.wait(1, { timeoutMs: 50 }))).toMatchObject({ code: "deadline_exceeded" });
    // The caller's cancellation may come before the handler's own deadline.
    await expect.poll(() => reasons).toHaveLength(1);
    expect(["deadline_exceeded", "cancelled"]).toContain(reasons.pop());
    expect(await failure(client.wait(0, { signal: abort.signal }))).toMatchObject({ code: "cancelled" });
    await expect.poll(() => reasons).toEqual(["cancelled"]);
  });

  it("unsubscribes from an Observable when the caller stops reading", async () => {
    let isOver = false;
    @CinnabarService(Numbers)
    class Controller extends Base {
      override count() {
        return timer(0, 1).pipe(tap({ finalize: () => (isOver = true) }));
      }
    }
    const { client } = await serve([Controller]);
    for await (const item of client.count(0)) if (item === 3) break;
    await expect.poll(() => isOver).toBe(true);
  });

  it("does not wait for an Observable that its handler gives when the caller has gone", async () => {
    let given = 0;
    let subscribed = 0;
    let finalized = 0;
    const endless = (call: CallContext) =>
      new Promise<Observable<number>>((resolve) => {
        call.signal.addEventListener("abort", () => {
          given++;
          resolve(timer(0, 1).pipe(tap({ subscribe: () => subscribed++, finalize: () => finalized++ })));
        });
      });
    @CinnabarService(Numbers)
    class Controller extends Base {
      override wait(_ms: number, call: CallContext): never {
        return endless(call) as never;
      }
      override count(_to: number, call: CallContext): never {
        return endless(call) as never;
      }
    }
    const { client } = await serve([Controller]);
    expect(await failure(client.wait(0, { timeoutMs: 20 }))).toMatchObject({ code: "deadline_exceeded" });
    expect(await failure(client.count(0, { timeoutMs: 20 }).toArray())).toMatchObject({
      code: "deadline_exceeded",
    });
    await expect.poll(() => given).toBe(2);
    for (let turn = 0; turn < 20; turn++) await new Promise(setImmediate);
    expect(finalized).toBe(subscribed);
  });

  it("lets a generator go on only when the caller reads, and runs its finally", async () => {
    let made = 0;
    let isOver = false;
    @CinnabarService(Numbers)
    class Controller extends Base {
      override async *count() {
        try {
          for (;;) yield made++;
        } finally {
          isOver = true;
        }
      }
    }
    const { client } = await serve([Controller], { maxQueuedItems: 4 });
    const stream = client.count(0, { window: { items: 8 } });
    for (let n = 0; n < 100; n++) expect((await stream.next()).value).toBe(n);
    // What the caller has not read is bounded by its window.
    expect(made).toBeLessThan(130);
    stream.cancel();
    await expect.poll(() => isOver).toBe(true);
  });

  it("ends when its handler's Observable is too far ahead, which gives no more then", async () => {
    let made = 0;
    @CinnabarService(Numbers)
    class Controller extends Base {
      override count() {
        return range(0, 1_000).pipe(tap(() => made++));
      }
    }
    const { client } = await serve([Controller], { maxQueuedItems: 100 });
    expect(await failure(client.count(0).toArray())).toMatchObject({ code: "resource_exhausted" });
    expect(made).toBeLessThan(110);
  });
});

describe("a class that is no controller of the contract", () => {
  it("does not start", async () => {
    const incomplete = class Incomplete {
      sum() {
        return 1;
      }
    };
    // @ts-expect-error methods are missing
    expect(() => CinnabarService(Numbers)(incomplete)).toThrow('Incomplete has no method "fail"');
  });

  it("does not compile with a method of other types", () => {
    class Wrong extends Base {}
    class Right extends Base {}
    interface WrongSum extends Omit<Base, "sum"> {
      sum(text: string): number;
    }
    const wrong = Wrong as unknown as new () => WrongSum;
    // @ts-expect-error the input is no text
    CinnabarService(Numbers)(wrong);
    CinnabarService(Numbers)(Right);
  });

  it("says so when its constructor has no types at run time", () => {
    class Plain extends Base {
      readonly dependency: unknown;
      constructor(dependency: unknown) {
        super();
        this.dependency = dependency;
      }
    }
    expect(() => CinnabarService(Numbers)(Plain)).toThrow(
      "parameter 0 of the constructor of Plain has no type at run time",
    );
    Reflect.defineMetadata("self:paramtypes", [{ index: 0, param: "TOKEN" }], Plain);
    expect(() => CinnabarService(Numbers)(Plain)).not.toThrow();
  });

  it("cannot share a method with another controller", async () => {
    class A extends Base {}
    class B extends Base {}
    CinnabarService(Numbers)(A);
    CinnabarService(Numbers)(B);
    await expect(serve([A, B])).rejects.toThrow('two controllers handle "numbers.v1/sum"');
  });
});
