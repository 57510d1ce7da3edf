import { describe, expect, it } from "vitest";
import { addonFault, fileFault, loadFault } from "./addon-file.ts";
import { addonIfThere } from "./libfabric.ts";

describe("a file in the addon's place", () => {
  it("is the addon if it has all its functions", () => {
    const addon = addonIfThere();
    if (addon === undefined) return;
    expect(addonFault(addon)).toBe("");
    const { patches: _, ...older } = addon;
    expect(addonFault(older)).toBe(
      "the addon is older than the package (it has no patches): run npm run build:native",
    );
  });

  it("is no addon if it has none of them", () => {
    expect(addonFault({})).toBe("it is not Cinnabar's addon");
  });

  it("is not there, or may not be loaded", () => {
    expect(fileFault("/nonexistent/cinnabar.node")).toBe("no such file");
    expect(fileFault("a-package-of-the-users")).toBe("");
    const disabled = Object.assign(new Error("Cannot load native addon"), { code: "ERR_DLOPEN_DISABLED" });
    expect(loadFault(disabled)).toContain("without --no-addons");
    Object.defineProperty(process, "permission", { value: { has: () => false }, configurable: true });
    try {
      expect(loadFault(disabled)).toContain("--allow-addons");
    } finally {
      Reflect.deleteProperty(process, "permission");
    }
    expect(loadFault(new Error("first line\nsecond"))).toBe("first line");
  });
});
