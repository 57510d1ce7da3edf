import { Engine } from "cinnabar";
import { describe, expect, it } from "vitest";
import { loadServices } from "../src/lane-module.ts";

const load = (code: string) =>
  loadServices(
    `data:text/javascript,${encodeURIComponent(code)}`,
    { lane: 1, lanes: 2, data: undefined },
    false,
  );

describe("a lane module whose services are made of the lane's engine", () => {
  it("gets the engine, and keeps its own object", async () => {
    const services = await load(`export default () => ({
      status: "not_serving",
      serve(engine) {
        engine.health.set("", this.status, { reason: "reading the index" });
        return [];
      },
    })`);
    await using engine = await Engine.open({ serve: services.serve });
    expect(engine.health.of()).toEqual({ status: "not_serving", reason: "reading the index" });
  });

  it.each([
    ["throws", "serve() { throw new Error('no disk'); }", "lane 1 failed to make its services: no disk"],
    [
      "gives something else",
      "serve: async () => ({})",
      "must give an array of what implement() returns; it gave object",
    ],
    ["gives nothing", "serve() {}", "it gave undefined"],
  ])("fails with the name of the module where its function %s", async (_, member, message) => {
    const { serve } = await load(`export default { ${member} }`);
    await expect(Engine.open({ serve })).rejects.toMatchObject({
      code: "failed_precondition",
      message: expect.stringContaining(message),
    });
  });
});
