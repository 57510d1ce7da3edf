/**
 * Splits the sanitizers' reports into findings, and keeps those that concern the addon. Node, its worker threads and
 * the addons of the test tools hold memory to their end as well. A leak without a frame of ours in its stack is theirs,
 * and is left out. Findings other than leaks always count.
 *
 * @param {string} text one process's report
 * @returns {string[]} one text a finding
 */
export function findings(text) {
  const blocks = text.split(
    /\n(?=(?:Direct|Indirect) leak of |SUMMARY: |=+\n==\d+==ERROR: |[^\n]*runtime error: )/,
  );
  return blocks
    .map((block) => block.trim())
    .filter((block) => {
      if (/^(Direct|Indirect) leak of /.test(block)) return isOurs(block);
      return /ERROR: (?!LeakSanitizer: detected memory leaks)|runtime error: /.test(block);
    });
}

/** Where a stack leaves native code for JavaScript: what lies below such a frame has called, and has not allocated. */
const javaScriptFrame =
  /Builtins_|v8::internal::Execution|v8::internal::\(anonymous namespace\)::Invoke|<unknown module>/;

/**
 * Whether the addon asked for the memory. V8's heap is not ours, even if V8 takes it while the addon calls V8. What
 * libfabric keeps is not ours: 1.17's net provider leaks a copy of its fi_info with every endpoint. A stack through
 * libfabric ends there, so its caller is unknown. Memory of a library that was unloaded before the check, perhaps the
 * addon, has a frame without a module right below the allocator. Code that V8 made has no module either, but never
 * allocates by itself.
 *
 * @param {string} leak
 */
function isOurs(leak) {
  const frames = leak.split("\n").filter((line) => /^\s*#\d+ /.test(line));
  const first = frames[1] ?? "";
  if (first.includes("<unknown module>")) return true;
  if (/\bv8::/.test(first) || frames.some((frame) => frame.includes("/libfabric.so"))) return false;
  const end = frames.findIndex((frame) => javaScriptFrame.test(frame));
  return (end < 0 ? frames : frames.slice(0, end)).some((frame) =>
    /cinnabar|\/native\/(base|fabric|transport|engine|binding|test)\//i.test(withoutNodeModules(frame)),
  );
}

/**
 * The checkout may itself be called cinnabar, which makes no addon below its node_modules ours.
 *
 * @param {string} frame
 */
function withoutNodeModules(frame) {
  return frame.replace(/\/[^\s()]*\/node_modules\/[^\s()]*/, "");
}
