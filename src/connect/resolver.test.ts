import { describe, expect, it } from "vitest";
import { FakeClock } from "../base/time/fake-clock.test-support.ts";
import { dnsResolver, staticResolver } from "./resolver.ts";

/** Lets pending promises continue. */
const settle = () => new Promise(setImmediate);

function setUp() {
  const clock = new FakeClock();
  const told: (readonly string[] | string)[] = [];
  const zone = { addresses: ["10.0.0.2", "10.0.0.1"] as readonly string[] };
  const resolver = dnsResolver("tcp://files.internal:7400", {
    clock,
    everyMs: 1000,
    async lookUp(host) {
      if (host !== "files.internal") throw new Error(`asked for ${host}`);
      return zone.addresses;
    },
  });
  const stop = resolver.start({
    onUrls: (urls) => told.push(urls),
    onError: (error) => told.push((error as Error).message),
    onGone() {},
  });
  const passSeconds = async (seconds: number) => {
    for (let i = 0; i < seconds; i++) {
      clock.advance(1000);
      await settle();
    }
  };
  return { clock, told, zone, stop, passSeconds };
}

describe("a DNS resolver", () => {
  it("tells a URL for each address, again only when they change", async () => {
    const { told, zone, passSeconds, stop } = setUp();
    await settle();
    await passSeconds(3);
    expect(told).toEqual([["tcp://10.0.0.1:7400", "tcp://10.0.0.2:7400"]]);
    zone.addresses = ["10.0.0.1", "10.0.0.2"];
    await passSeconds(1);
    zone.addresses = ["fd00::1"];
    await passSeconds(1);
    expect(told.slice(1)).toEqual([["tcp://[fd00::1]:7400"]]);
    stop();
  });

  it("takes an empty answer for an error, and asks again", async () => {
    const { told, zone, passSeconds, stop } = setUp();
    await settle();
    zone.addresses = [];
    await passSeconds(1);
    zone.addresses = ["10.0.0.9"];
    await passSeconds(1);
    expect(told.slice(1)).toEqual(["files.internal has no address", ["tcp://10.0.0.9:7400"]]);
    stop();
  });

  it("has no timer once it is stopped, also while an answer is awaited", async () => {
    const { clock, told, stop } = setUp();
    stop();
    await settle();
    expect([clock.timers, told]).toEqual([0, []]);
  });

  it.each(["shm://name", "mem://name", "files.internal"])("cannot look up %s", (url) => {
    expect(() => dnsResolver(url)).toThrow(TypeError);
  });

  it("asks the system", async () => {
    let stop = () => {};
    const urls = await new Promise<readonly string[]>((resolve, reject) => {
      stop = dnsResolver("tcp://localhost:1").start({ onUrls: resolve, onError: reject, onGone() {} });
    });
    stop();
    expect(urls.some((url) => url === "tcp://127.0.0.1:1" || url === "tcp://[::1]:1")).toBe(true);
  });
});

describe("a static resolver", () => {
  it("tells each URL once", () => {
    const told: (readonly string[])[] = [];
    staticResolver(["mem://a", "mem://b", "mem://a"]).start({
      onUrls: (urls) => told.push(urls),
      onError() {},
      onGone() {},
    })();
    expect(told).toEqual([["mem://a", "mem://b"]]);
  });
});
