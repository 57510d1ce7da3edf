/**
 * The form of names that Prometheus has. "plain": as the exporter of the JavaScript SDK writes them,
 * `rpc_server_call_duration_bucket`. "units": as a collector writes them, and Prometheus for what it receives over OTLP,
 * `rpc_server_call_duration_seconds_bucket`.
 */
export type NameForm = "plain" | "units";

/** What decides about a name. */
interface Named {
  readonly name: string;
  readonly unit: string;
  readonly kind: "counter" | "gauge" | "histogram";
}

/** Prometheus's names of units. Units in braces are annotations and have no name. */
const unitWords: Readonly<Record<string, string>> = { s: "seconds", By: "bytes" };

/** The name of a metric in Prometheus; of a histogram, without `_bucket`, `_count` and `_sum`. */
export function nameOf({ name, unit, kind }: Named, form: NameForm): string {
  const word = form === "units" ? unitWords[unit] : undefined;
  const parts = [
    labelOf(name),
    ...(word === undefined ? [] : [word]),
    ...(kind === "counter" ? ["total"] : []),
  ];
  return parts.join("_");
}

/** The label of an attribute. It is the same in both forms. */
export function labelOf(attribute: string): string {
  return attribute.replaceAll(/\W/g, "_");
}
