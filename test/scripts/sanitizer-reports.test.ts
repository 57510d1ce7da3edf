import { describe, expect, it } from "vitest";
import { findings } from "../../scripts/test/sanitizer-reports.mjs";

const header =
  "\n=================================================================\n==5042==ERROR: LeakSanitizer: detected memory leaks\n";
const summary = "\nSUMMARY: AddressSanitizer: 1520 byte(s) leaked in 38 allocation(s).\n";

function leak(...frames: string[]): string {
  return `\nDirect leak of 40 byte(s) in 1 object(s) allocated from:\n${frames.map((frame, i) => `    #${i} 0x7febff0b94c8 in ${frame}`).join("\n")}\n`;
}

describe("the reading of sanitizer reports", () => {
  it("takes no notice of leaks of Node and of other addons", () => {
    const rolldown = leak(
      "operator new(unsigned long)",
      "napi_create_reference (/usr/bin/node+0xc50f19)",
      "napi_register_module_v1 (/home/me/cinnabar/node_modules/@rolldown/binding/rolldown-binding.node+0xe73142)",
    );
    expect(findings(header + rolldown + summary)).toEqual([]);
  });

  it("keeps leaks of the addon", () => {
    const ours = leak(
      "operator new(unsigned long)",
      "cinnabar::Port::open /home/me/tree/native/engine/port.cc:12",
    );
    expect(findings(header + ours + summary)).toHaveLength(1);
  });

  it("takes no notice of what libfabric keeps, nor of V8's heap growing under the addon's calls", () => {
    const fabric = leak("malloc", "fi_dupinfo (/usr/lib/x86_64-linux-gnu/libfabric.so.1+0x1234)");
    const heap = leak(
      "operator new(unsigned long)",
      "v8::internal::Heap_Barrier (/usr/bin/node+0x1)",
      "napi_create_function (/usr/bin/node+0x2)",
      "initialize /home/me/tree/native/binding/addon.cc:358",
    );
    expect(findings(header + fabric + heap + summary)).toEqual([]);
  });

  it("keeps leaks of a library that is no longer there to be named", () => {
    expect(findings(header + leak("malloc", "  (<unknown module>)") + summary)).toHaveLength(1);
  });

  it("takes no notice of what V8 allocates for code it made", () => {
    const heap = leak(
      "operator new[](unsigned long)",
      "v8::internal::Page::AllocateFreeListCategories() (/usr/bin/node+0x1)",
      "  (<unknown module>)",
    );
    expect(findings(header + heap + summary)).toEqual([]);
  });

  it("takes no notice of what JavaScript allocates when the addon has called it", () => {
    const called = leak(
      "operator new(unsigned long)",
      "v8::internal::Factory::New (/usr/bin/node+0x1)",
      "Builtins_JSEntry (/usr/bin/node+0x2)",
      "cinnabar::binding::Wake::fire /tree/native/binding/wake.cc:9",
    );
    expect(findings(header + called + summary)).toEqual([]);
  });

  it("keeps what Node allocates for the addon", () => {
    const asked = leak(
      "operator new(unsigned long)",
      "napi_create_reference (/usr/bin/node+0x1)",
      "cinnabar::binding::Wake::Wake /tree/native/binding/wake.cc:9",
      "Builtins_CEntry (/usr/bin/node+0x2)",
    );
    expect(findings(header + asked + summary)).toHaveLength(1);
  });

  it("keeps every other error", () => {
    const error =
      "=================================================================\n==7==ERROR: AddressSanitizer: heap-use-after-free on address 0x60\n    #0 0x1 in f (/usr/bin/node+0x1)\n";
    expect(findings(error)).toHaveLength(1);
    expect(
      findings("/tree/native/engine/port.cc:3:5: runtime error: signed integer overflow\n    #0 f\n"),
    ).toHaveLength(1);
  });

  it("finds nothing in an empty report", () => {
    expect(findings("")).toEqual([]);
  });
});
