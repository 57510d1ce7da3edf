// Wycheproof's own files, where CINNABAR_WYCHEPROOF names their folder: `testvectors_v1` of a clone. No package has
// them; published-vectors.test.ts has the cases that matter here.
import { createHmac } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { Aead } from "./aead.ts";
import { expand } from "./key-schedule.ts";
import { type SuiteName, tagBytes } from "./suites.ts";

const folder = process.env.CINNABAR_WYCHEPROOF ?? "";

interface AeadCase {
  readonly tcId: number;
  readonly key: string;
  readonly iv: string;
  readonly aad: string;
  readonly msg: string;
  readonly ct: string;
  readonly tag: string;
  readonly result: "valid" | "invalid" | "acceptable";
}

interface HkdfCase {
  readonly tcId: number;
  readonly ikm: string;
  readonly salt: string;
  readonly info: string;
  readonly size: number;
  readonly okm: string;
  readonly result: "valid" | "invalid";
}

function casesIn<Case>(file: string): Case[] {
  const { testGroups } = JSON.parse(readFileSync(join(folder, `${file}_test.json`), "utf8"));
  return testGroups.flatMap(({ tests }: { readonly tests: readonly Case[] }) => tests);
}

const hex = (text: string) => Buffer.from(text, "hex");

/** The sealed text of a valid case, and whether the case opens. Both by number 1. */
function run(suite: SuiteName, { key, iv, aad, msg, ct, tag }: AeadCase) {
  const base = Uint8Array.from(hex(iv));
  base[11] = (base[11] as number) ^ 1;
  const sealing = Aead.create(suite, "seal", hex(key), base);
  const opening = Aead.create(suite, "open", hex(key), base);
  const text = hex(msg);
  const [sealed, made] = [new Uint8Array(text.byteLength), new Uint8Array(tagBytes)];
  sealing.sealPiece(1, hex(aad), text, sealed, made);
  const opened = new Uint8Array(hex(ct).byteLength);
  const opens = opening.openPiece(1, hex(aad), hex(ct), opened, hex(tag));
  sealing.close();
  opening.close();
  return {
    sealed: Buffer.from(sealed).toString("hex"),
    made: Buffer.from(made).toString("hex"),
    opens,
    opened,
  };
}

describe.skipIf(folder === "")("Wycheproof", () => {
  it.each([
    ["aes-256-gcm", "aes_gcm", 60],
    ["chacha20-poly1305", "chacha20_poly1305", 250],
  ] as const)("has no case in which %s is wrong", (suite, file, fewest) => {
    // Keys, nonces and tags have one length here.
    const cases = casesIn<AeadCase>(file).filter(
      ({ key, iv, tag }) => key.length === 64 && iv.length === 24 && tag.length === 32,
    );
    expect(cases.length).toBeGreaterThanOrEqual(fewest);
    for (const each of cases) {
      const { sealed, made, opens, opened } = run(suite, each);
      expect([each.tcId, opens]).toEqual([each.tcId, each.result === "valid"]);
      if (opens)
        expect([sealed, made, Buffer.from(opened).toString("hex")]).toEqual([each.ct, each.tag, each.msg]);
      else expect(opened.every((byte) => byte === 0)).toBe(true);
    }
    console.log(`${cases.length} cases of ${file}`);
  });

  it("has no case in which HKDF is wrong", () => {
    // Here an info is text, and lengths are those of keys.
    const cases = casesIn<HkdfCase>("hkdf_sha256").filter(
      ({ info, result }) => result === "valid" && Buffer.from(hex(info).toString("utf8")).equals(hex(info)),
    );
    for (const { ikm, salt, info, size, okm } of cases) {
      const key = hex(salt).byteLength === 0 ? Buffer.alloc(32) : hex(salt);
      const prk = createHmac("sha256", key).update(hex(ikm)).digest();
      expect(Buffer.from(expand(prk, hex(info).toString("utf8"), size)).toString("hex")).toBe(okm);
    }
    expect(cases.length).toBeGreaterThanOrEqual(10);
    console.log(`${cases.length} cases of HKDF`);
  });
});
