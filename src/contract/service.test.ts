import { describe, expect, it, vi } from "vitest";
import { isService, methodPath, service } from "./service.ts";
import { unary } from "./unary.ts";

/** Without the types, as a caller from JavaScript. */
const loose = service as (name: unknown, methods: unknown) => unknown;

function methodsOf(count: number) {
  return Object.fromEntries(Array.from({ length: count }, (_, index) => [`m${index}`, unary()]));
}

describe("service", () => {
  it("makes a frozen plain value of its methods", () => {
    const ping = unary();
    const made = service("frames.v1", { ping });
    expect(made.name).toBe("frames.v1");
    expect(made.methods.ping).toBe(ping);
    expect(Object.keys(made.methods)).toEqual(["ping"]);
    expect(Object.isFrozen(made) && Object.isFrozen(made.methods)).toBe(true);
  });

  it("keeps inherited names out of its methods", () => {
    const methods = service("a", { ping: unary() }).methods as Record<string, unknown>;
    expect(methods.toString).toBeUndefined();
    expect(Reflect.get(methods, "__proto__")).toBeUndefined();
  });

  it.each(["a", "frames.v1", "org/team_x/frames-2.v1", "A".repeat(128)])("takes the name %s", (name) => {
    expect(service(name, { ping: unary() }).name).toBe(name);
  });

  it.each([
    ["", "service: name has 0 characters; the limits are 1 and 128"],
    ["A".repeat(129), "service: name has 129 characters; the limits are 1 and 128"],
    ["frames v1", 'service: name "frames v1" may contain only letters, digits'],
    ["främes", "may contain only letters"],
    ["a\n", "may contain only letters"],
    [7, "service: name must be a string, not number"],
  ])("refuses the name %j", (name, message) => {
    expect(() => loose(name, { ping: unary() })).toThrow(TypeError);
    expect(() => loose(name, { ping: unary() })).toThrow(message);
  });

  it.each([
    "then",
    "toJSON",
    "constructor",
    "prototype",
    "toString",
    "valueOf",
    "hasOwnProperty",
    "__defineGetter__",
    "__proto__",
  ])("refuses the method name %s, which objects use themselves", (name) => {
    const methods = Object.defineProperty({}, name, { value: unary(), enumerable: true });
    expect(() => loose("a", methods)).toThrow(`service "a": methods: "${name}" is reserved`);
  });

  it.each(["", "1st", "a-b", "a b", "a.b", "ä"])(
    "refuses the method name %j, which is no identifier",
    (name) => {
      expect(() => loose("a", { [name]: unary() })).toThrow(
        `service "a": methods: "${name}" is not an identifier`,
      );
    },
  );

  it("takes method names up to 128 characters", () => {
    expect(() => loose("a", { ["m".repeat(128)]: unary() })).not.toThrow();
    expect(() => loose("a", { ["m".repeat(129)]: unary() })).toThrow("has 129 characters, the limit is 128");
  });

  it("takes 1 to 1000 methods", () => {
    expect(() => loose("a", {})).toThrow('service "a": methods is empty; a service has at least 1 method');
    expect(() => loose("a", methodsOf(1000))).not.toThrow();
    expect(() => loose("a", methodsOf(1001))).toThrow(
      'service "a": methods has 1001 entries; the limit is 1000',
    );
  });

  it("refuses what is no method, and methods that are no object", () => {
    expect(() => loose("a", { ping: { kind: "unary" } })).toThrow(
      'service "a": methods.ping is not a method',
    );
    expect(() => loose("a", { ping: null })).toThrow("methods.ping is not a method");
    expect(() => loose("a", null)).toThrow('service "a": methods must be an object');
  });
});

describe("isService", () => {
  it("knows services of any copy of the package, and nothing else", async () => {
    vi.resetModules();
    const copy = await import("./service.ts");
    expect(isService(service("a", { ping: unary() }))).toBe(true);
    expect(isService(copy.service("a", { ping: unary() }))).toBe(true);
    for (const value of [null, {}, { name: "a", methods: {} }, "a"]) expect(isService(value)).toBe(false);
  });
});

describe("methodPath", () => {
  it("puts a slash between service and method", () => {
    expect(methodPath({ name: "org/frames.v1" }, "stat")).toBe("org/frames.v1/stat");
  });
});
