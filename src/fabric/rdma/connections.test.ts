import { expect, it } from "vitest";
import { rdmaConnections } from "./connections.ts";

it("the list of RDMA connections takes no options but a process", () => {
  expect(() => rdmaConnections({ pid: 1.5 })).toThrow("pid must be an integer");
  expect(() => rdmaConnections({ pit: 1 } as never)).toThrow('unknown option "pit"');
});
