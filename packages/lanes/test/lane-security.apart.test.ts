import { randomBytes } from "node:crypto";
import { Engine } from "cinnabar";
import { openLanes } from "cinnabar-lanes";
import { describe, expect, it } from "vitest";
import { loadServices } from "../src/lane-module.ts";
import {
  EngineSecurity,
  type LaneRules,
  LaneSecurity,
  type LaneSecurityOptions,
} from "../src/lane-security.ts";

const key = randomBytes(32);
const made = (options: unknown) => new LaneSecurity(options as LaneSecurityOptions);

describe("the security of lanes", () => {
  it.each<[string, unknown, string]>([
    ["a function of the module", { allow: () => true }, "security.allow cannot be sent to a thread"],
    ["another", { psk: { lookup: () => key } }, "security.psk.lookup cannot be sent to a thread"],
    ["an unknown option", { certificate: "" }, 'openLanes: unknown option "security.certificate"'],
    ["nothing", null, "security must be an object"],
  ])("is not %s", (_, options, message) => {
    expect(() => made(options)).toThrow(message);
  });

  it.each<[string, unknown, string]>([
    [
      "a key that is too short",
      { psk: { identity: "a", key: new Uint8Array(8) } },
      "32 to 256 bytes, it has 8",
    ],
    ["a missing certificate", { tls: { ca: "" } }, "openLanes: security.tls.cert must be PEM"],
    [
      "what OpenSSL cannot use",
      { tls: { cert: "-----BEGIN", key: "x", ca: "-----BEGIN" } },
      "OpenSSL cannot use the certificates",
    ],
  ])("is not %s, which is an error before a thread starts", async (_, security, message) => {
    const options = { listen: "shm://nobody", security: security as LaneSecurityOptions };
    await expect(openLanes("file:///service.js", options)).rejects.toThrow(message);
  });

  it("can be sent to a thread, and is a copy: what becomes of the caller's key does not matter", () => {
    const own = Uint8Array.from(key);
    const given = made({ psk: { identity: "pair", key: own }, bulk: "plain" });
    own.fill(0);
    expect(structuredClone(given.current)).toEqual({
      psk: { identity: "pair", key: new Uint8Array(key) },
      bulk: "plain",
    });
  });

  const opened = (options: unknown, rules: LaneRules, listen: string) =>
    Engine.open({ listen, ...withSecurity(new EngineSecurity(made(options).current, rules)) });

  it("goes with the rules of the module, or is refused by the engine", async () => {
    const lookup = () => key;
    await expect(opened({}, { allow: () => true }, "tcp://127.0.0.1:0")).rejects.toThrow(
      "neither tls nor psk",
    );
    await expect(opened({}, { identify: () => "x" }, "shm://x")).rejects.toThrow("identify has no effect");
    await expect(opened({ psk: {} }, {}, "tcp://127.0.0.1:0")).rejects.toThrow("identity and key, or lookup");
    await using engine = await opened({ psk: {} }, { lookup }, "tcp://127.0.0.1:0");
    expect(engine.urls).toHaveLength(1);
    expect(new EngineSecurity(undefined).options).toBeUndefined();
  });
});

const withSecurity = ({ options }: EngineSecurity) => (options === undefined ? {} : { security: options });

describe("a module of lanes", () => {
  const load = (code: string, isSecured = true) =>
    loadServices(
      `data:text/javascript,${encodeURIComponent(code)}`,
      { lane: 0, lanes: 1, data: undefined },
      isSecured,
    );
  const security = "{ allow() { return true; } }";

  it("has its rules beside its services", async () => {
    const services = await load(`export default { serve: [], security: ${security} }`);
    expect(services.security?.allow?.(undefined, "a/b")).toBe(true);
  });

  it.each<[string, string, string, boolean?]>([
    ["that nobody would ask", `export default { serve: [], security: ${security} }`, "no such option", false],
    [
      "beside the services",
      `export const serve = [], security = ${security}`,
      'exports "security" by itself',
    ],
    ["that are unknown", "export default { serve: [], security: { alow() {} } }", 'unknown "alow"'],
    [
      "that are no functions",
      "export default { serve: [], security: { allow: true } }",
      "allow must be a function",
    ],
    ["that are nothing", "export default { serve: [], security: null }", "it must be an object"],
  ])("has no rules %s", async (_, code, message, isSecured) => {
    await expect(load(code, isSecured)).rejects.toMatchObject({
      code: "failed_precondition",
      message: expect.stringContaining(message),
    });
  });
});
