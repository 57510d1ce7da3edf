import { hkdfSync } from "node:crypto";
import { describe, expect, it } from "vitest";
import { addonIfThere } from "../../fabric/libfabric/libfabric.ts";
import { expand, KeyChain, OpeningKeys, SealingKeys } from "./key-schedule.ts";

const hex = (text: string) => Buffer.from(text, "hex");

describe("expand", () => {
  it("gives RFC 5869's third example, with an info that is empty", () => {
    const prk = hex("19ef24a32c717b167f33a91d6f648bdf96596776afdb6377ac434c1c293ccb04");
    const okm = "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8";
    expect(Buffer.from(expand(prk, "", 42)).toString("hex")).toBe(okm);
  });

  it("is the second half of node:crypto's HKDF, at all lengths", () => {
    // HKDF-Extract of an empty secret without salt, by the first half of the same function.
    const prk = expandedPrk();
    for (const bytes of [1, 31, 32, 33, 64, 76, 100]) {
      const expected = Buffer.from(
        hkdfSync("sha256", new Uint8Array(0), new Uint8Array(0), "cinnabar 1", bytes),
      );
      expect(Buffer.from(expand(prk, "cinnabar 1", bytes))).toEqual(expected);
    }
  });
});

/** HMAC-SHA256 of no bytes under 32 zeros. */
const expandedPrk = () => hex("b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");

describe("links of keys", () => {
  const secret = Buffer.alloc(32, 3);
  const chain = () => new KeyChain("aes-256-gcm", secret, "test");
  const seal = (keys: SealingKeys, link: number, number: number) => {
    const memory = new Uint8Array(40);
    keys.of(link).sealMessage(memory, 0, 8, 16, number);
    return memory;
  };
  const opens = (keys: OpeningKeys, link: number, number: number, sealed: Uint8Array) =>
    keys.of(link)?.openMessage(Uint8Array.from(sealed), 0, 8, 16, number) ?? false;

  it("are the same for both sides, and differ from each other", () => {
    const sealing = new SealingKeys(chain(), 0);
    const opening = new OpeningKeys(chain(), { behind: 0, ahead: 2 }, 0);
    const sealed = [0, 1, 2].map((link) => seal(sealing, link, link + 1));
    const answers = [0, 1, 2].map((link) => sealed.map((one, i) => opens(opening, link, i + 1, one)));
    expect(answers).toEqual([
      [true, false, false],
      [false, true, false],
      [false, false, true],
    ]);
    sealing.close();
    opening.close();
  });

  it("are forgotten when a later one has opened something, and not before", () => {
    const sealing = new SealingKeys(chain(), 0);
    const opening = new OpeningKeys(chain(), { behind: 1, ahead: 2 }, 0);
    const sealed = [0, 1, 2].map((link) => seal(sealing, link, link + 1));
    const known = () => [0, 1, 2, 3, 4, 5].map((link) => opening.of(link) !== undefined);
    expect(known()).toEqual([true, true, true, false, false, false]);
    opening.opened(1);
    expect(known()).toEqual([true, true, true, true, false, false]);
    opening.opened(2);
    expect(known()).toEqual([false, true, true, true, true, false]);
    opening.opened(1);
    expect(opens(opening, 1, 2, sealed[1] as Uint8Array)).toBe(true);
    expect(opens(opening, 2, 3, sealed[2] as Uint8Array)).toBe(true);
    opening.close();
    expect(known()).toEqual([false, false, false, false, false, false]);
    sealing.close();
    expect(addonIfThere()?.aeads()).toBe(0);
  });
});
