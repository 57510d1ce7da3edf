/*
 * Names in Protobuf. A field has two: that of the file, in lower case, and that of JSON, which is the contract's key.
 */

/** What Protobuf takes for a name. */
export const identifier: RegExp = /^[A-Za-z_][A-Za-z0-9_]*$/;

/** Values of an enum: identifiers, but for words that begin a statement in an enum, and the name of the enum itself. */
export const enumValue: RegExp = /^(?!(?:option|reserved|Enum)$)[A-Za-z_][A-Za-z0-9_]*$/;

/** Keys that a file can write as the name of a field in JSON. Brackets around it are for extensions. */
export const jsonName: RegExp = /^(?!\[.*\]$)[^\p{C}"\\]+$/u;

export const upperFirst = (name: string): string => name.charAt(0).toUpperCase() + name.slice(1);

/**
 * The name of a field in the file: `user_name` of `userName`. It begins with a letter, and is not the key without its
 * underscore: an optional field has a group named after it, such as `_id` of `id`, and Python takes that for the key.
 */
export function fieldName(key: string): string {
  const name = key
    .replace(/([a-z0-9])([A-Z])/g, "$1_$2")
    .replace(/[^A-Za-z0-9]+/g, "_")
    .replace(/_$/, "")
    .toLowerCase();
  return /^[a-z]/.test(name) ? name : `field_${name.replace(/^_/, "")}`.replace(/_$/, "");
}

/**
 * Names that a type cannot have: Java's classes have one such class in every message, or one for another type or map
 * beside it, and `Enum` is in every message of an enum.
 */
export const generatedType: RegExp = /^(?:Builder|Enum)$|(?:OrBuilder|.Entry|DefaultEntryHolder)$/;

/** What nothing else in a message may be called: its name in JSON by default, its group, and a key like one. */
export function namesOf(key: string): readonly string[] {
  const name = fieldName(key);
  return [lowerCamel(name), `_${name}`, ...(key.startsWith("_") ? [key] : [])];
}

/** The name in JSON that Protobuf makes of the name of a field: `userName` of `user_name`. */
export function lowerCamel(name: string): string {
  return name.replace(/_(.)/g, (_, next: string) => next.toUpperCase());
}

/** The same for names that compilers and generated code cannot keep apart. */
export function likeness(name: string): string {
  return name.replaceAll("_", "").toLowerCase();
}

/** The same for values of an enum, which compilers compare without the name of the enum. */
export function likenessOfValue(name: string): string {
  return likeness(name).replace(/^enum(?=.)/, "");
}
