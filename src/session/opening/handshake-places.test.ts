import { describe, expect, it } from "vitest";
import { FakeClock } from "../../base/time/fake-clock.test-support.ts";
import type { ReturnPath } from "../../wire/handshake.ts";
import { HandshakePlaces, mostForAddress } from "./handshake-places.ts";

const path = (address: number, nonce = 1n): ReturnPath => ({
  session: 1,
  nonce,
  address: Uint8Array.of(address),
  messageBytes: 4096,
});

describe("the places of handshakes", () => {
  it("are given without a cookie up to a half, and with one beyond it, up to all", () => {
    const places = new HandshakePlaces(4, new FakeClock());
    const give = [1, 2, 3].map((address) => {
      expect(places.admit(path(address), undefined)).toBe("answer");
      return places.take(path(address));
    });
    expect(places.admit(path(4), undefined)).toBe("retry");
    expect(places.admit(path(4), places.cookieFor(path(4)))).toBe("answer");
    give.push(places.take(path(4)));
    expect(places.admit(path(5), places.cookieFor(path(5)))).toBe("full");
    for (const each of give) each();
    // Given back twice is given back once.
    give[0]?.();
    expect(places.taken).toBe(0);
    expect(places.admit(path(5), undefined)).toBe("answer");
  });

  it("are bounded for one return address", () => {
    const places = new HandshakePlaces(100, new FakeClock());
    for (let i = 0; i < mostForAddress; i++) places.take(path(1, BigInt(i + 1)));
    expect(places.admit(path(1), undefined)).toBe("full");
    expect(places.admit(path(2), undefined)).toBe("answer");
  });

  it("take a cookie for its return path alone, and for a minute or two", () => {
    const clock = new FakeClock();
    const places = new HandshakePlaces(1, clock);
    const cookie = places.cookieFor(path(1));
    places.take(path(9));
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
    expect(places.admit(path(1), new HandshakePlaces(1, clock).cookieFor(path(1)))).toBe("retry");
    expect(places.admit(path(1), cookie)).toBe("full");
    clock.advance(60_000);
    expect(places.admit(path(1), cookie)).toBe("full");
    clock.advance(60_000);
    expect(places.admit(path(1), cookie)).toBe("retry");
  });
});
