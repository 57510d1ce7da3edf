/** The most names that one list may have: a range is written in a few characters. */
const mostNames = 65_536;

/**
 * The names in a host list of Slurm, in its order: "node[008-010,12],login" is node008, node009, node010, node12 and
 * login. `scontrol show hostnames` does the same.
 *
 * @throws RangeError for a malformed list, and for more than 65,536 names
 */
export function expandHostlist(list: string): string[] {
  const names = splitOutside(list).flatMap((part) => namesOf(part, list));
  if (names.length > mostNames) throw tooMany(list);
  return names;
}

/** At commas and spaces that are not between brackets. */
function splitOutside(list: string): string[] {
  const parts = list.match(/(?:[^,\s[\]]|\[[^\]]*\])+/g) ?? [];
  const separators = parts.reduce((rest, part) => rest.replace(part, ""), list);
  if (parts.length === 0 || /[^,\s]/.test(separators)) throw wrong(list);
  return parts;
}

/** Of "rack[1-2]n[01-03]": the ranges to the right turn fastest. */
function namesOf(part: string, list: string): string[] {
  const [, before = "", ranges, after = ""] = /^([^[]*)(?:\[([^\]]*)\](.*))?$/.exec(part) ?? [];
  if (ranges === undefined) return [part];
  const numbers = ranges.split(",").flatMap((range) => numbersOf(range, list));
  const rest = namesOf(after, list);
  if (numbers.length * rest.length > mostNames) throw tooMany(list);
  return numbers.flatMap((number) => rest.map((name) => `${before}${number}${name}`));
}

/** Of "008-010": as many digits as the first one has. */
function numbersOf(range: string, list: string): string[] {
  const [, first = "", last = first] = /^(\d{1,15})(?:-(\d{1,15}))?$/.exec(range) ?? [];
  const count = Number(last) - Number(first) + 1;
  if (first === "" || count < 1) throw wrong(list);
  if (count > mostNames) throw tooMany(list);
  return Array.from({ length: count }, (_, index) =>
    String(Number(first) + index).padStart(first.length, "0"),
  );
}

const wrong = (list: string): RangeError =>
  new RangeError(`expandHostlist: "${list}" is no host list, as "node[1-3,6],login"`);

const tooMany = (list: string): RangeError =>
  new RangeError(`expandHostlist: "${list}" has more than ${mostNames} names`);
