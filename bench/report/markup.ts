/** Markup that is safe to put into a page: what was text in it has been escaped. */
export class Markup {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

export type Value = Markup | string | number | undefined | readonly (Markup | undefined)[];

/**
 * markup`<b>${text}</b>`: each value is escaped unless it is markup; lists are put together, and what is undefined is
 * left out.
 */
export function markup(parts: TemplateStringsArray, ...values: readonly Value[]): Markup {
  return new Markup(parts.map((part, index) => part + render(values[index])).join(""));
}

function render(value: Value): string {
  if (value === undefined) return "";
  if (value instanceof Markup) return value.text;
  if (typeof value === "object") return value.map((one) => one?.text ?? "").join("\n");
  return escapeText(String(value));
}

export function escapeText(text: string): string {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}
