import { describe, expect, it } from "vitest";
import { Engine } from "./engine.ts";

const refused = (promise: Promise<unknown>) => expect(promise).rejects;

describe("an engine whose options of security cannot be honoured", () => {
  it("does not open", async () => {
    await refused(Engine.open({ security: { psk: { identity: "a", key: new Uint8Array(16) } } })).toThrow(
      "Engine.open: security.psk.key must have 32 to 256 bytes, it has 16",
    );
    await refused(
      Engine.open({ listen: "tcp://127.0.0.1:0", security: { allow: () => true } }),
    ).toMatchObject({
      code: "failed_precondition",
      message: expect.stringContaining("security has neither tls nor psk, which tcp needs"),
    });
  });

  it("does not connect", async () => {
    await using server = await Engine.open({ listen: "mem://security-edge" });
    await using engine = await Engine.open({ security: { allow: () => true } });
    await refused(engine.connect("tcp://127.0.0.1:1")).toMatchObject({ code: "failed_precondition" });
    await refused(engine.connect("mem://security-edge", { name: "a.example" })).toMatchObject({
      code: "failed_precondition",
      message: expect.stringContaining('name is "a.example", and peers over mem prove no name'),
    });
    await refused(engine.connect("mem://security-edge", { name: "" })).toThrow(
      "connect: name must be a string",
    );
    expect((await engine.connect("mem://security-edge")).state).toBe("connected");
    expect(server.state).toBe("open");
  });
});
