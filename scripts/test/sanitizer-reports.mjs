/**
 * Splits what the sanitizers wrote into findings, and keeps those that concern the addon. Node, its worker threads and the addons of
 * the test tools hold memory to their end as well; leaks in whose stack nothing of ours appears are theirs and say nothing about us.
 * Everything that is not a leak counts, wherever it was found.
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

/**
 * Memory of a library that was unloaded before the check has frames without a module, and it may well have been the addon. So has code that V8
 * made, but that never allocates by itself: it tells nothing further down the stack than right below the allocator.
 *
 * @param {string} leak
 */
function isOurs(leak) {
  const frames = leak.split("\n").filter((line) => /^\s*#\d+ /.test(line));
  if (frames[1]?.includes("<unknown module>")) return true;
  return frames.some((frame) =>
    /cinnabar|\/native\/(fabric|engine|binding|test)\/|libfabric/i.test(withoutNodeModules(frame)),
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
