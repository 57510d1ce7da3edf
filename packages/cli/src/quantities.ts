import { UsageError } from "./command.ts";

const msByUnit: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };
const bytesByUnit: Readonly<Record<string, number>> = {
  "": 1,
  B: 1,
  KiB: 2 ** 10,
  MiB: 2 ** 20,
  GiB: 2 ** 30,
  kB: 1e3,
  MB: 1e6,
  GB: 1e9,
};

/** The longest time limit that a timer can have. */
const maxMs = 2 ** 31 - 1;

/** The time in a text such as `500ms`, `2s` or `1.5m`, in milliseconds. @throws UsageError that names the option. */
export function milliseconds(option: string, text: string): number {
  const [, number = "", unit = ""] = /^(\d+(?:\.\d+)?)(ms|s|m|h)$/.exec(text) ?? [];
  const ms = Number(number) * (msByUnit[unit] ?? Number.NaN);
  if (ms > 0 && ms <= maxMs) return ms;
  throw new UsageError(`${option} must be a time such as 500ms, 2s or 1m, it is "${text}"`);
}

/** The size in a text such as `4096`, `64KiB` or `1.5MB`, in bytes. @throws UsageError that names the option. */
export function bytes(option: string, text: string): number {
  const [, number = "", unit = ""] = /^(\d+(?:\.\d+)?)([A-Za-z]*)$/.exec(text) ?? [];
  const count = number === "" ? Number.NaN : Number(number) * (bytesByUnit[unit] ?? Number.NaN);
  if (Number.isSafeInteger(count)) return count;
  throw new UsageError(`${option} must be a size such as 4096, 64KiB or 16MiB, it is "${text}"`);
}

/** The whole number in a text. @throws UsageError that names the option and the bounds. */
export function integer(option: string, text: string, low: number, high: number): number {
  const number = Number(text);
  if (/^\d+$/.test(text) && number >= low && number <= high) return number;
  throw new UsageError(`${option} must be a whole number from ${low} to ${high}, it is "${text}"`);
}
