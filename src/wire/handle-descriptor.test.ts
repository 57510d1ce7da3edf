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
