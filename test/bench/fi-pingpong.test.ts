import { describe, expect, it } from "vitest";
import { readUsPerTransfer } from "../../bench/floor/fi-pingpong.ts";

const output = `bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
64      20k     =20k     2.4m        0.03s     86.49       0.74       1.35
`;

describe("what fi_pingpong prints", () => {
  it("is read by the name of the column", () => {
    expect(readUsPerTransfer(output)).toBe(0.74);
  });

  it("is read behind warnings, too", () => {
    expect(readUsPerTransfer(`libfabric:1:core: something\n\n${output}`)).toBe(0.74);
  });

  it("is nothing when it has not measured", () => {
    expect(readUsPerTransfer("")).toBeUndefined();
    expect(readUsPerTransfer("[error] util/pingpong.c:435: connect: Connection refused\n")).toBeUndefined();
    expect(readUsPerTransfer(output.split("\n")[0] as string)).toBeUndefined();
  });
});
