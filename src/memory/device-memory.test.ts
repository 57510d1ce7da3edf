import { describe, expect, it } from "vitest";
import { RpcError } from "../base/errors/rpc-error.ts";
import type { Port } from "../fabric/port.ts";
import { assertMemoryKind } from "./device-memory.ts";

const portOf = (scheme: string) => ({ scheme }) as unknown as Port;

describe("the option memory", () => {
  it.each([[undefined], ["host"]])("takes %s", (memory) => {
    expect(() => assertMemoryKind("expose", memory)).not.toThrow();
  });

  it.each([
    [
      "gpu",
      'memory must be "host", { cuda: number }, { rocr: number } or { levelZero: number }, it is "gpu"',
    ],
    [null, "it is null"],
    [0, "it is 0"],
    [{}, "it has no fields"],
    [{ metal: 0 }, "it has the fields metal"],
    [{ cuda: 0, rocr: 0 }, "it has the fields cuda, rocr"],
    [{ cuda: -1 }, "memory.cuda must be an integer from 0 to 65535, it is -1"],
    [{ rocr: 1.5 }, "memory.rocr must be an integer from 0 to 65535, it is 1.5"],
    [{ levelZero: "0" }, 'memory.levelZero must be an integer from 0 to 65535, it is "0"'],
    [{ cuda: undefined }, "memory.cuda must be an integer from 0 to 65535, it is undefined"],
  ])("refuses %j, naming the field", (memory, why) => {
    expect(() => assertMemoryKind("expose", memory)).toThrow(TypeError);
    expect(() => assertMemoryKind("expose", memory)).toThrow(why);
  });

  it.each([
    [{ cuda: 0 }, "tcp"],
    [{ rocr: 3 }, "shm"],
    [{ levelZero: 1 }, "tcp"],
  ])("says of %j over %s that it is unimplemented, and who does not offer it", (memory, scheme) => {
    const error = thrown(() => assertMemoryKind("expose", memory, portOf(scheme)));
    expect(error.code).toBe("unimplemented");
    const [[kind, device]] = Object.entries(memory) as [[string, number]];
    expect(error.message).toContain(`expose: memory { ${kind}: ${device} } cannot be registered: `);
    expect(error.message).toMatch(/provider \S+ of libfabric [\d.]+ offers|registers host memory only/);
  });

  it("speaks of mem for a mem port, and of every scheme without a port", () => {
    expect(thrown(() => assertMemoryKind("expose", { cuda: 0 }, portOf("mem"))).message).toContain(
      "provider mem moves host memory only",
    );
    const { message } = thrown(() => assertMemoryKind("pool.take", { cuda: 0 }));
    expect(message).toMatch(/pool\.take: .*(provider shm .*provider|registers host memory only)/);
  });
});

function thrown(run: () => void): RpcError {
  try {
    run();
  } catch (error) {
    if (error instanceof RpcError) return error;
    throw error;
  }
  return expect.fail("expected an RpcError");
}
