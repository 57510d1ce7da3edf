const colors = 12;
const dashes = 4;

/**
 * The classes by which the style sheet colours subjects: Cinnabar's have a colour of their own, in which dashes tell
 * them apart; the others one each.
 */
export function colorsOf(subjects: readonly string[]): string[] {
  let ours = 0;
  let theirs = 0;
  return subjects.map((subject) => {
    if (subject.startsWith("Cinnabar")) return `ours d${ours++ % dashes}`;
    const index = theirs++;
    return `c${index % colors} d${Math.floor(index / colors) % dashes}`;
  });
}
