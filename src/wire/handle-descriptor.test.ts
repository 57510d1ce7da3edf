import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { readHandleDescriptor, writeHandleDescriptor } from "./handle-descriptor.ts";

const handle = { incarnation: 7n, token: new Uint8Array(16).fill(3), bytes: 5, access: 1, leaseMs: 100 };

describe("a handle", () => {
  it("carries addresses of every fabric", () => {
    const urls = [
      "tcp://[::1]:7400",
      "net+unix:///run/an app/ünter.sock",
      "net+pipe://name",
      "psm3://~0a1b",
      "shm:///run/app.sock",
    ];
    expect(readHandleDescriptor(writeHandleDescriptor({ ...handle, urls }))).toEqual({ ...handle, urls });
  });

  it.each(["net", "1tcp://a", "TCP://a", "net://", "mem://a\n", `mem://${"a".repeat(201)}`])(
    "with the address %j is refused",
    (url) => {
      expect(readHandleDescriptor(writeHandleDescriptor({ ...handle, urls: [url] }))).toBe(
        "handle has a URL that is none",
      );
    },
  );
});

const whole = {
  urls: ["shm://a", "tcp://[::1]:7400"],
  incarnation: 2n ** 63n,
  token: Uint8Array.from({ length: 16 }, (_, i) => i),
  bytes: 2 ** 40,
  access: 3,
  leaseMs: 1234,
};

describe("a handle's descriptor", () => {
  it("comes back as it was, without a view of the message", () => {
    const payload = Buffer.from(writeHandleDescriptor(whole));
    const read = readHandleDescriptor(payload);
    payload.fill(0);
    expect(read).toEqual(whole);
  });

  it("is cut off, too long, or of no form, and refused", () => {
    const payload = writeHandleDescriptor(whole);
    expect(readHandleDescriptor(payload.subarray(0, 39))).toBe("handle has 39 bytes");
    expect(readHandleDescriptor(payload.subarray(0, payload.length - 1))).toBe("handle is cut off");
    expect(readHandleDescriptor(Buffer.concat([payload, Buffer.from([0])]))).toBe(
      "handle has bytes after its URLs",
    );
    for (const [at, value, message] of [
      [0, 9, "version 9"],
      [1, 0, "access 0"],
      [2, 17, "17 URLs"],
      [41, 0, "a URL that is none"],
    ] as const) {
      const changed = payload.slice();
      changed[at] = value;
      expect(readHandleDescriptor(changed)).toContain(message);
    }
  });

  it("never throws, whatever the bytes", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        expect(["string", "object"]).toContain(typeof readHandleDescriptor(bytes));
      }),
    );
  });
});
