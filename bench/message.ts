/** The small object that every contender sends and gets back: a number, a name, and a text of 64 bytes. */
export interface SmallObject {
  readonly id: number;
  readonly name: string;
  readonly text: string;
}

export const smallObject: SmallObject = {
  id: 4711,
  name: "cinnabar",
  text: "0123456789abcdef".repeat(4),
};
