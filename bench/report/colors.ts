/** The class by which the style sheet colours a subject: Cinnabar's have its own, all others one by their place in the chart. */
export function colorOf(subject: string, index: number): string {
  return subject.startsWith("Cinnabar") ? "ours" : `c${index % 12}`;
}
