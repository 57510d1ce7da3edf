import { describe, expect, it } from "vitest";
import { z } from "zod";
import { startOrder } from "../src/component.ts";
import { configure, linesOf } from "../src/configuration.ts";
import { application, component, type StartOptions, startApplication } from "../src/index.ts";

/** Components that write down what happens to them. */
function parts() {
  const seen: string[] = [];
  const noting = (name: string, needs: Record<string, object> = {}) =>
    component({
      needs,
      start: ({ needs: given }) => {
        seen.push(`start ${name} with ${Object.entries(given).join(" ")}`.trim());
        return {
          value: `${name}!`,
          drain: async () => seen.push(`drain ${name}`),
          stop: async () => seen.push(`stop ${name}`),
        };
      },
    });
  return { seen, noting };
}

describe("components", () => {
  it("start in the order of their needs, and stop in reverse, each after a drain", async () => {
    const { seen, noting } = parts();
    const shop = application("shop", {
      http: noting("http", { orders: {}, stock: {} }),
      orders: noting("orders", { stock: {} }),
      stock: noting("stock"),
    });
    const started = await startApplication(shop);
    expect(started.values.http).toBe("http!");
    expect(await started.stop()).toEqual([]);
    expect(await started.stop()).toEqual([]);
    expect(seen).toEqual([
      "start stock with",
      "start orders with stock,stock!",
      "start http with orders,orders! stock,stock!",
      ...["drain http", "stop http", "drain orders", "stop orders", "drain stock", "stop stock"],
    ]);
  });

  it("say by a path which component is missing, and which need each other", () => {
    const { noting } = parts();
    const missing = { a: noting("a", { b: {} }), b: noting("b", { c: {} }) };
    expect(() => startOrder(application("shop", missing))).toThrow(
      'shop: there is no component "c", which is needed: a -> b -> c',
    );
    const circle = { x: noting("x", { a: {} }), a: noting("a", { b: {} }), b: noting("b", { a: {} }) };
    expect(() => startOrder(application("shop", circle))).toThrow("components need each other: a -> b -> a");
    expect(() => startOrder(application("shop", { a: noting("a", { toString: {} }) }))).toThrow(
      "a -> toString",
    );
    expect(() => application("shop", { "a.b": noting("a") })).toThrow('"a.b" is no name');
  });

  it("that have started stop when another cannot start, and its secrets stay hidden", async () => {
    const { seen, noting } = parts();
    const failing = component({
      needs: { first: {} },
      config: z.object({ password: z.string() }),
      start: ({ config }): never => {
        throw new Error(`login with ${config.password} failed`);
      },
    });
    const shop = application("shop", { failing, first: noting("first") });
    const start = startApplication(shop, { env: { SHOP_FAILING_PASSWORD: "hunter22" } });
    await expect(start).rejects.toThrow("shop: failing could not start: login with (secret) failed");
    expect(seen).toEqual(["start first with", "drain first", "stop first"]);
  });

  it("that hang while they start are given up, and stopped if they start after all", async () => {
    let finish = () => {};
    let isStopped = false;
    let isAborted = false;
    const slow = component({
      start: ({ signal }) => {
        signal.addEventListener("abort", () => {
          isAborted = true;
        });
        return new Promise<{ value: number; stop(): Promise<void> }>((resolve) => {
          finish = () =>
            resolve({
              value: 1,
              stop: async () => {
                isStopped = true;
              },
            });
        });
      },
    });
    await expect(startApplication(application("app", { slow }), { startMs: 10 })).rejects.toThrow(
      "app: slow could not start: it did not start within 10 ms",
    );
    expect(isAborted).toBe(true);
    finish();
    await expect.poll(() => isStopped).toBe(true);
  });

  it("that start are given up by the signal, and those that have started stop", async () => {
    const { seen, noting } = parts();
    const giveUp = new AbortController();
    const reason = new Error("no more");
    const slow = component({
      needs: { first: {} },
      start: ({ signal }) => {
        seen.push("start slow");
        queueMicrotask(() => giveUp.abort(reason));
        return new Promise<never>((_, reject) => {
          signal.addEventListener("abort", () => reject(new Error("aborted")));
        });
      },
    });
    const stubborn = component({
      needs: { first: {} },
      start: () => {
        queueMicrotask(() => giveUp.abort(reason));
        return new Promise<never>(() => {});
      },
    });
    const last = noting("last", { slow: {} });
    const { signal } = giveUp;
    const given = startApplication(application("app", { last, slow, first: noting("first") }), { signal });
    await expect(given).rejects.toMatchObject({
      message: "app: slow could not start: no more",
      cause: reason,
    });
    expect(seen).toEqual(["start first with", "start slow", "drain first", "stop first"]);
    for (const each of [{ stubborn, first: noting("first") }, { first: noting("first") }])
      await expect(startApplication(application("app", each), { signal })).rejects.toThrow("no more");
    expect(seen.length).toBe(4);
  });

  it("show no secret when they cannot start or stop, wherever it stands in the configuration", async () => {
    const secrets = ["hunter22", "hunter22more", "p@ss w", "1234567", "t0ken", "default33"];
    const text = `${secrets.join(" ")} p%40ss%20w`;
    const failing = (isStarted: boolean) =>
      component({
        secrets: ["pin"],
        config: z.object({
          password: z.string(),
          tokens: z.array(z.string()),
          database: z.string(),
          pin: z.number(),
          limits: z.object({ accessToken: z.string() }),
          fallback: z.object({ apiKey: z.string() }).default({ apiKey: "default33" }),
        }),
        start: () => {
          if (!isStarted) throw new Error(text);
          return { value: 1, stop: () => Promise.reject(new Error(text)) };
        },
      });
    const sources = {
      file: {
        one: {
          ...{ password: "hunter22", tokens: ["hunter22more"], database: "db://user:p%40ss%20w@host/x" },
          ...{ pin: 1234567 },
        },
      },
      flags: [["one.limits", '{"accessToken":"t0ken"}']] as const,
    };
    const lines: string[] = [];
    const log = (line: string) => lines.push(line);
    const started = await startApplication(application("app", { one: failing(true) }), { ...sources, log });
    lines.push(...(await started.stop()).map(({ message }) => message));
    const start = startApplication(application("app", { one: failing(false) }), sources);
    await start.catch(({ message }: Error) => lines.push(message));
    const broken = application("app", {
      one: failing(true),
      two: component({ needs: { one: {} }, start: () => Promise.reject(new Error("no")) }),
    });
    await startApplication(broken, { ...sources, log }).catch(() => {});
    expect(lines.filter((line) => line.includes("(secret)")).length).toBe(3);
    for (const secret of [...secrets, "p%40ss%20w"]) expect(lines.join("\n")).not.toContain(secret);
    expect(lines.join("\n")).not.toContain("more");
  });

  it("that cannot drain or stop are named, and the others stop", async () => {
    const { seen, noting } = parts();
    const bad = component({
      needs: { good: {} },
      start: () => ({
        value: 1,
        drain: () => Promise.reject(new Error("no drain")),
        stop: async () => seen.push("stop bad"),
      }),
    });
    const started = await startApplication(application("app", { bad, good: noting("good") }));
    const failures = await started.stop();
    expect(failures.map(({ message }) => message)).toEqual(["bad could not stop: no drain"]);
    expect(seen.slice(1)).toEqual(["stop bad", "drain good", "stop good"]);
  });

  it("know the types of what they need and of their configuration", async () => {
    const store = component({ start: () => ({ value: new Map([["a", 1]]) }) });
    const user = component({
      needs: { store },
      config: z.object({ key: z.string().default("a") }),
      start: ({ needs, config }) => ({ value: needs.store.get(config.key) }),
    });
    component({
      needs: { store },
      // @ts-expect-error the store has no such method
      start: ({ needs }) => ({ value: () => needs.store.read() }),
    });
    const started = await startApplication(application("app", { user, store }));
    expect(started.values.user).toBe(1);
  });
});

describe("the configuration", () => {
  const server = component({
    config: z.object({
      listen: z.string().default("tcp://127.0.0.1:7400"),
      port: z.number().default(1),
      verbose: z.boolean().default(false),
      peers: z.array(z.string()).default([]),
      name: z.string().default("n"),
      database: z.string().default("db://user:hunter22@host/x"),
      replica: z.string().default("db://user:hun@ter@host/x"),
      limits: z.object({ accessToken: z.string(), maxBytes: z.number() }).optional(),
      pin: z.string().optional(),
    }),
    secrets: ["pin"],
    start: () => ({ value: 1 }),
  });
  const shop = application("shop", { webServer: server });
  const effective = async (sources: StartOptions) => {
    const { values, settings } = await configure(shop, ["webServer"], sources);
    return { value: values.get("webServer") as Record<string, unknown>, settings };
  };

  it("takes a flag before the environment, that before the file, and that before the default", async () => {
    const { value, settings } = await effective({
      file: { webServer: { listen: "file", name: "file", port: 2, verbose: true } },
      env: { SHOP_WEB_SERVER_LISTEN: "env", SHOP_WEB_SERVER_NAME: "env", OTHER_WEB_SERVER_PORT: "9" },
      flags: [["webServer.listen", "flag"]],
    });
    expect(value).toMatchObject({ listen: "flag", name: "env", port: 2, verbose: true, peers: [] });
    expect(Object.fromEntries(settings.map(({ path, origin }) => [path.slice(10), origin]))).toMatchObject({
      ...{ listen: "flag", name: "environment", port: "file", verbose: "file", peers: "default" },
    });
  });

  it("reads text as the schema wants it: numbers, booleans, arrays, and text that looks like them", async () => {
    const { value } = await effective({
      env: { SHOP_WEB_SERVER_NAME: "123" },
      flags: [
        ["webServer.port", "8080"],
        ["webServer.verbose", "true"],
        ["webServer.peers", '["a","b"]'],
      ],
    });
    expect(value).toMatchObject({ name: "123", port: 8080, verbose: true, peers: ["a", "b"] });
  });

  it("shows each value with its origin, and no secret", async () => {
    const configuration = await configure(shop, ["webServer"], {
      file: { webServer: { limits: { accessToken: "t0ken", maxBytes: 1 } } },
      env: { SHOP_WEB_SERVER_PIN: "1234" },
    });
    const lines = linesOf(configuration);
    expect(lines.find((line) => line.includes("listen"))).toMatch(
      /^webServer\.listen = "tcp:\/\/127\.0\.0\.1:7400" +# default$/,
    );
    expect(lines.find((line) => line.includes("pin"))).toMatch(
      /^webServer\.pin = \(secret\) +# environment$/,
    );
    const all = lines.join("\n");
    for (const secret of ["t0ken", "1234", "hunter22"]) expect(all).not.toContain(secret);
    expect(all.match(/db:\/\/user:\(secret\)@host\/x/g)?.length).toBe(2);
    expect(all).toContain('{"accessToken":"(secret)","maxBytes":1}');
  });

  it("names everything that is wrong, with its origin, and shows no secret", async () => {
    const failure = await effective({
      file: { webServer: { lisen: "x", limits: 5 }, nobody: {} },
      env: { SHOP_WEB_SERVER_PORT: "many" },
      flags: [
        ["webServer.pin", "[1]"],
        ["port", "1"],
      ],
    }).catch((error: Error) => error.message);
    expect(failure).toContain("shop: the configuration is wrong:");
    expect(failure).toContain("nobody: there is no such component (from the file); there are webServer");
    expect(failure).toContain("--port: a flag has the form --component.field");
    expect(failure).toMatch(/webServer\.port: .*expected number.* \(from environment\)/);
    expect(failure).toMatch(/webServer\.limits: .* \(from the file\)/);
    const unknown = await effective({ file: { webServer: { lisen: "x" } } }).catch(
      (error: Error) => error.message,
    );
    expect(unknown).toContain("webServer.lisen: there is no such field (from the file)");
    const strict = application("shop", {
      one: component({ config: z.object({ password: z.enum(["a"]) }), start: () => ({ value: 1 }) }),
    });
    const secret = await configure(strict, ["one"], { env: { SHOP_ONE_PASSWORD: "hunter22" } }).catch(
      (error: Error) => error.message,
    );
    expect(secret).toContain("one.password: it does not fit its schema (from environment)");
    expect(secret).not.toContain("hunter22");
  });

  it("names the cause of variables that Kubernetes sets for a Service of its name", async () => {
    const env = {
      SHOP_WEB_SERVER_SERVICE_HOST: "10.0.0.7",
      SHOP_WEB_SERVER_SERVICE_PORT_HTTP: "8080",
      SHOP_WEB_SERVER_PORT: "tcp://10.0.0.7:8080",
      SHOP_WEB_SERVER_PORT_8080_TCP_ADDR: "10.0.0.7",
    };
    const cause =
      "webServer: Kubernetes sets such variables for a Service of this name; set enableServiceLinks: false";
    await expect(effective({ env })).rejects.toThrow(cause);
    const { SHOP_WEB_SERVER_PORT: _, ...others } = env;
    await expect(effective({ env: others })).rejects.toThrow(cause);
    const own = application("shop", {
      web: component({ config: z.object({ serviceHost: z.string() }), start: () => ({ value: 1 }) }),
    });
    const mixed = configure(own, ["web"], { env: { SHOP_WEB_SERVICE_HOST: "a", SHOP_WEB_LISEN: "b" } });
    const message = await mixed.catch((error: Error) => error.message);
    expect(message).toContain("web.lisen: there is no such field");
    expect(message).not.toContain("Kubernetes");
    const ported = application("shop", {
      web: component({
        config: z.object({ serviceHost: z.string(), port: z.number() }),
        start: () => ({ value: 1 }),
      }),
    });
    const wrong = configure(ported, ["web"], { env: { SHOP_WEB_SERVICE_HOST: "a", SHOP_WEB_PORT: "b" } });
    const refused = await wrong.catch((error: Error) => error.message);
    expect(refused).toContain("web.port: ");
    expect(refused).not.toContain("Kubernetes");
  });

  it("is not polluted by names of prototypes", async () => {
    const file = JSON.parse('{"webServer":{"__proto__":{"listen":"evil"}}}') as unknown;
    expect((await effective({ file }).catch(() => ({ value: {} }))).value).not.toMatchObject({
      listen: "evil",
    });
    await expect(effective({ file: JSON.parse('{"__proto__":{"webServer":1}}') })).rejects.toThrow(
      "__proto__",
    );
  });
});
