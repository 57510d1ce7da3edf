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
 * A stack without any module name belongs to a library that was unloaded before the check, which may well have been the addon.
 *
 * @param {string} leak
 */
function isOurs(leak) {
  return /cinnabar|\/native\/(fabric|engine|binding|test)\/|libfabric|<unknown module>/i.test(
    leak.replaceAll(/\/[^\s()]*\/node_modules\/[^\s()]*/g, ""),
  );
}
