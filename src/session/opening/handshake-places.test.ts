import { describe, expect, it } from "vitest";
import { FakeClock } from "../../base/time/fake-clock.test-support.ts";
import { networkOfAddress } from "../../fabric/host.ts";
import type { ReturnPath } from "../../wire/handshake.ts";
import { HandshakePlaces, leastStayMs, mostForAddress, mostWaiting } from "./handshake-places.ts";

const path = (address: number, nonce = 1n): ReturnPath => ({
  session: 1,
  nonce,
  address: Uint8Array.of(address),
  messageBytes: 4096,
});

describe("the places of handshakes", () => {
  it("are given without a cookie up to a half, and with one beyond it, up to all", () => {
    const places = new HandshakePlaces(4, 5000, new FakeClock());
    const give = [1, 2, 3].map((address) => {
      expect(places.admit(path(address), undefined)).toBe("answer");
      return places.take(path(address), false, () => {});
    });
    expect(places.admit(path(4), undefined)).toBe("retry");
    expect(places.admit(path(4), places.cookieFor(path(4)))).toBe("answer");
    give.push(places.take(path(4), true, () => {}));
    expect(places.admit(path(5), places.cookieFor(path(5)))).toBe("wait");
    for (const each of give) each();
    // Given back twice is given back once.
    give[0]?.();
    expect(places.taken).toBe(0);
    expect(places.admit(path(5), undefined)).toBe("answer");
  });

  it("are bounded for one return address", () => {
    const places = new HandshakePlaces(100, 5000, new FakeClock());
    for (let i = 0; i < mostForAddress; i++) places.take(path(1, BigInt(i + 1)), false, () => {});
    expect(places.admit(path(1), undefined)).toBe("full");
    expect(places.admit(path(2), undefined)).toBe("answer");
  });

  it("take a cookie for its return path alone, and for a minute or two", () => {
    const clock = new FakeClock();
    const places = new HandshakePlaces(1, 5000, clock);
    const cookie = places.cookieFor(path(1));
    places.take(path(9), false, () => {});
    expect(places.admit(path(2), cookie)).toBe("retry");
    expect(places.admit(path(1, 2n), cookie)).toBe("retry");
    expect(places.admit({ ...path(1), session: 2 }, cookie)).toBe("retry");
    expect(places.admit({ ...path(1), messageBytes: 8192 }, cookie)).toBe("retry");
    expect(
      places.admit(
        path(1),
        cookie.map((byte, i) => (i === 3 ? byte ^ 1 : byte)),
      ),
    ).toBe("retry");
    expect(places.admit(path(1), new HandshakePlaces(1, 5000, clock).cookieFor(path(1)))).toBe("retry");
    expect(places.admit(path(1), cookie)).toBe("wait");
    clock.advance(60_000);
    expect(places.admit(path(1), cookie)).toBe("wait");
    clock.advance(60_000);
    expect(places.admit(path(1), cookie)).toBe("retry");
  });
});

/** A return path at a port of a host, 127.0.0.`host`. */
const at = (host: number, port: number): ReturnPath => ({
  session: 1,
  nonce: BigInt(port),
  address: Uint8Array.of(2, 0, port >> 8, port & 255, 127, 0, 0, host, 0, 0, 0, 0, 0, 0, 0, 0),
  messageBytes: 4096,
});

/** Handshakes that stay until they are evicted, or given back by `leave`. */
class Crowd {
  readonly clock = new FakeClock();
  readonly places: HandshakePlaces;
  /** The open ones, oldest first, as "host:port". */
  readonly open = new Map<string, () => void>();

  constructor(most: number) {
    this.places = new HandshakePlaces(most, 5000, this.clock);
  }

  hello(host: number, port: number, withCookie = true): string {
    const path = at(host, port);
    const name = `${host}:${port}`;
    const accept = () => {
      const give = this.places.take(path, withCookie, () => this.leave(name));
      this.open.set(name, give);
    };
    const admission = this.places.admit(path, withCookie ? this.places.cookieFor(path) : undefined);
    if (admission === "answer") accept();
    if (admission === "wait" && !this.places.wait(path, accept)) return "full";
    return admission;
  }

  leave(name: string): void {
    const give = this.open.get(name);
    this.open.delete(name);
    give?.();
  }

  get names(): string[] {
    return [...this.open.keys()];
  }
}

describe("when all places are taken", () => {
  it("a host with none gets the oldest place of the host with the most, at once", () => {
    const crowd = new Crowd(64);
    for (let port = 1; port <= 96; port++) crowd.hello(1, port);
    expect(crowd.names).toHaveLength(64);
    crowd.hello(2, 1);
    expect(crowd.names).toContain("2:1");
    expect(crowd.names).not.toContain("1:1");
    expect(crowd.names).toContain("1:2");
    // What the crowd does then takes nothing from the newcomer.
    for (let port = 97; port <= 1000; port++) crowd.hello(1, port);
    crowd.clock.advance(leastStayMs);
    expect(crowd.names).toContain("2:1");
    expect(crowd.places.taken).toBe(64);
  });

  it("hosts share them evenly", () => {
    const crowd = new Crowd(8);
    for (let port = 1; port <= 100; port++) for (const host of [1, 2, 3, 4]) crowd.hello(host, port);
    for (const host of [1, 2, 3, 4])
      expect(crowd.names.filter((name) => name.startsWith(`${host}:`))).toHaveLength(2);
  });

  it("hellos of the same host wait in line, and get in when the oldest have had their time", () => {
    const crowd = new Crowd(64);
    for (let port = 1; port <= 96; port++) crowd.hello(1, port);
    crowd.hello(1, 9999);
    expect(crowd.places.waiting).toBe(33);
    expect(crowd.names).not.toContain("1:9999");
    // The crowd continues, from its addresses. Each has one turn.
    for (let port = 1; port <= 96; port++) crowd.hello(1, port);
    crowd.clock.advance(leastStayMs);
    expect(crowd.names).toContain("1:9999");
    expect(crowd.places.taken).toBe(64);
  });

  it("handshakes without a cookie go first, whatever their age", () => {
    const crowd = new Crowd(8);
    for (let port = 1; port <= 5; port++) expect(crowd.hello(1, port, false)).toBe("answer");
    expect(crowd.hello(1, 6, false)).toBe("retry");
    for (let port = 6; port <= 8; port++) crowd.hello(1, port);
    crowd.hello(1, 9);
    expect(crowd.names).toEqual(["1:2", "1:3", "1:4", "1:5", "1:6", "1:7", "1:8", "1:9"]);
  });

  it("a hello that is said again keeps its turn", () => {
    const crowd = new Crowd(2);
    for (const port of [1, 2, 3, 4, 3]) crowd.hello(1, port);
    expect(crowd.places.waiting).toBe(2);
    crowd.leave("1:1");
    expect(crowd.names).toEqual(["1:2", "1:3"]);
  });

  it("a bounded number waits, for a bounded time, and a host with many leaves room for another", () => {
    const crowd = new Crowd(2);
    crowd.hello(1, 1);
    crowd.hello(2, 1);
    for (let port = 2; port < 2 + mostWaiting; port++) expect(crowd.hello(1, port)).toBe("wait");
    expect(crowd.hello(1, 9999)).toBe("full");
    expect(crowd.hello(2, 2)).toBe("wait");
    expect(crowd.places.waiting).toBe(mostWaiting);
    crowd.clock.advance(60_000);
    expect(crowd.places.waiting).toBe(0);
    expect(crowd.places.taken).toBe(2);
  });
});

describe("the host of a return address", () => {
  it("is the IPv4 address, or the /64 network of an IPv6 address", () => {
    const six = (...groups: number[]) => {
      const bytes = new Uint8Array(28);
      bytes[0] = 10;
      groups.forEach((group, i) => void new DataView(bytes.buffer).setUint16(8 + 2 * i, group));
      return bytes;
    };
    expect(networkOfAddress(at(7, 1).address)).toBe(networkOfAddress(at(7, 2).address));
    expect(networkOfAddress(at(7, 1).address)).not.toBe(networkOfAddress(at(8, 1).address));
    expect(networkOfAddress(six(0x2001, 0xdb8, 1, 2, 3, 4, 5, 6))).toBe(
      networkOfAddress(six(0x2001, 0xdb8, 1, 2, 9, 9, 9, 9)),
    );
    expect(networkOfAddress(six(0x2001, 0xdb8, 1, 2))).not.toBe(networkOfAddress(six(0x2001, 0xdb8, 1, 3)));
    const mapped = six(0, 0, 0, 0, 0, 0xffff, 0x7f00, 7);
    expect(networkOfAddress(mapped)).toBe("127.0.0.7");
  });
});
