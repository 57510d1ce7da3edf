import { attribute, own } from "../conventions.ts";
import { labelOf, type NameForm } from "./names.ts";
import { type Query, queries } from "./queries.ts";

/** An alert: it fires when its query is on the wrong side of a bound for some time. */
export interface Alert {
  readonly name: string;
  readonly query: Query;
  readonly range: string;
  readonly condition: string;
  readonly for: string;
  readonly severity: "warning" | "critical";
  readonly summary: string;
}

const method = `{{ $labels.${labelOf(attribute.method)} }}`;
const perMethod = { range: "5m", for: "5m" } as const;

/** All alerts. Their bounds are where most services are in trouble; change them in the file. */
export const alerts: readonly Alert[] = [
  {
    ...perMethod,
    name: "CinnabarCallsFail",
    query: queries.failedShareServed,
    condition: "> 0.05",
    severity: "critical",
    summary: `{{ $value | humanizePercentage }} of the calls of ${method} fail.`,
  },
  {
    ...perMethod,
    name: "CinnabarCallsSlow",
    query: queries.p99Served,
    condition: "> 1",
    severity: "warning",
    summary: `One of a hundred calls of ${method} takes {{ $value | humanizeDuration }} or longer.`,
  },
  {
    ...perMethod,
    name: "CinnabarRequestsRejected",
    query: queries.rejections,
    condition: "> 0",
    severity: "warning",
    summary: `Admission control rejects requests: {{ $labels.${labelOf(own.cause)} }}.`,
  },
  {
    name: "CinnabarHandlersHang",
    query: queries.hanging,
    range: "15m",
    condition: "> 0",
    for: "15m",
    severity: "warning",
    summary: "Handlers whose calls are over do not end.",
  },
  {
    name: "CinnabarMemoryQuarantined",
    query: queries.quarantined,
    range: "5m",
    condition: "> 0",
    for: "1m",
    severity: "warning",
    summary: "{{ $value | humanize1024 }}B cannot be used, because a lost peer might still write there.",
  },
  {
    name: "CinnabarEventLoopBlocked",
    query: queries.stallTime,
    range: "5m",
    condition: "> 0.05",
    for: "5m",
    severity: "warning",
    summary:
      "The event loop of {{ $labels.instance }} is blocked for {{ $value | humanizePercentage }} of the time.",
  },
  {
    name: "CinnabarMessagesMalformed",
    query: queries.malformed,
    range: "5m",
    condition: "> 0",
    for: "1m",
    severity: "critical",
    summary: "Peers break the protocol.",
  },
  {
    name: "CinnabarNotServing",
    query: queries.serving,
    range: "5m",
    condition: "< 1",
    for: "1m",
    severity: "critical",
    summary: `The service "{{ $labels.${labelOf(own.service)} }}" does not serve; "" is the whole engine.`,
  },
  {
    name: "CinnabarBackendLost",
    query: queries.connected,
    range: "5m",
    condition: "< 1",
    for: "2m",
    severity: "warning",
    summary: `There is no connection with {{ $labels.${labelOf(attribute.serverAddress)} }}.`,
  },
  {
    name: "CinnabarNotScraped",
    query: queries.scraped,
    range: "5m",
    condition: "< 1",
    for: "5m",
    severity: "critical",
    summary: "Prometheus has no metrics of any engine.",
  },
];

/**
 * The alert rules as a file for Prometheus, with names of this form.
 *
 * @example
 * writeFileSync("cinnabar.rules.yml", prometheusRules("plain"));
 */
export function prometheusRules(form: NameForm): string {
  const lines = ["groups:", "  - name: cinnabar", "    rules:"];
  for (const { name, query, range, condition, for: duration, severity, summary } of alerts) {
    // A string of JSON is one of YAML, too.
    lines.push(
      `      - alert: ${name}`,
      `        expr: ${JSON.stringify(`(${query(form, range)}) ${condition}`)}`,
      `        for: ${duration}`,
      `        labels: { severity: ${severity} }`,
      `        annotations: { summary: ${JSON.stringify(summary)} }`,
    );
  }
  return `${lines.join("\n")}\n`;
}
