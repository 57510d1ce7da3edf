import { attribute, own } from "../conventions.ts";
import { labelOf, type NameForm } from "./names.ts";
import { type Query, queries } from "./queries.ts";

/** A panel of the dashboard: a graph over time. */
export interface Panel {
  readonly title: string;
  /** Of Grafana. */
  readonly unit: string;
  readonly lines: readonly { readonly query: Query; readonly legend: string }[];
}

const legend = (name: string): string => `{{${labelOf(name)}}}`;
const method = legend(attribute.method);
const line = (query: Query, text: string) => ({ query, legend: text });

/** All panels, in their order. */
export const panels: readonly Panel[] = [
  { title: "Calls served", unit: "reqps", lines: [line(queries.served, method)] },
  {
    title: "Share that fails, served",
    unit: "percentunit",
    lines: [line(queries.failedShareServed, method)],
  },
  {
    title: "Duration, served",
    unit: "s",
    lines: [line(queries.p50Served, `p50 ${method}`), line(queries.p99Served, `p99 ${method}`)],
  },
  { title: "Calls made", unit: "reqps", lines: [line(queries.called, method)] },
  { title: "Share that fails, made", unit: "percentunit", lines: [line(queries.failedShareCalled, method)] },
  { title: "Duration, made", unit: "s", lines: [line(queries.p99Called, `p99 ${method}`)] },
  {
    title: "Calls in flight",
    unit: "short",
    lines: [line(queries.inFlight, legend(own.direction)), line(queries.waiting, "waiting")],
  },
  { title: "Inputs of waiting calls", unit: "bytes", lines: [line(queries.waitingSize, "bytes")] },
  {
    title: "Admission control",
    unit: "short",
    lines: [line(queries.running, "running"), line(queries.queued, "queued")],
  },
  { title: "Requests rejected", unit: "reqps", lines: [line(queries.rejections, legend(own.cause))] },
  {
    title: "Attempts",
    unit: "ops",
    lines: [
      line(queries.retries, "retries"),
      line(queries.retriesWithheld, "withheld"),
      line(queries.replays, "answered again"),
    ],
  },
  { title: "Handlers that hang", unit: "short", lines: [line(queries.hanging, "handlers")] },
  { title: "Bulk", unit: "Bps", lines: [line(queries.transferred, legend(own.operation))] },
  { title: "Memory", unit: "bytes", lines: [line(queries.memory, legend(own.kind))] },
  { title: "Sessions", unit: "short", lines: [line(queries.sessions, "sessions")] },
  { title: "Sessions that end", unit: "ops", lines: [line(queries.sessionEnds, legend(own.reason))] },
  { title: "Messages refused", unit: "ops", lines: [line(queries.refused, legend(own.cause))] },
  {
    title: "Event loop blocked",
    unit: "percentunit",
    lines: [line(queries.stallTime, legend("instance"))],
  },
  { title: "Stalls of the event loop", unit: "ops", lines: [line(queries.stalls, legend("instance"))] },
  { title: "Services that serve", unit: "short", lines: [line(queries.serving, legend(own.service))] },
  {
    title: "Backends",
    unit: "short",
    lines: [line(queries.backends, `${legend(attribute.serverAddress)} ${legend(own.state)}`)],
  },
];

const columns = 3;
const [width, height] = [24 / columns, 8];
const datasource = { type: "prometheus", uid: "$datasource" };

/**
 * The dashboard as JSON for Grafana's import, with names of this form. It asks for the data source, and has a choice of
 * jobs.
 *
 * @example
 * writeFileSync("cinnabar.dashboard.json", grafanaDashboard("plain"));
 */
export function grafanaDashboard(form: NameForm): string {
  const dashboard = {
    title: "Cinnabar",
    uid: `cinnabar-${form}`,
    tags: ["cinnabar", "rpc"],
    schemaVersion: 39,
    editable: true,
    refresh: "30s",
    time: { from: "now-1h", to: "now" },
    templating: {
      list: [
        { name: "datasource", type: "datasource", query: "prometheus", label: "Data source" },
        {
          name: "job",
          type: "query",
          label: "Job",
          datasource,
          query: "label_values(cinnabar_sessions, job)",
          includeAll: true,
          allValue: ".*",
          multi: true,
          refresh: 2,
        },
      ],
    },
    panels: panels.map(({ title, unit, lines }, index) => ({
      id: index + 1,
      title,
      type: "timeseries",
      datasource,
      gridPos: { x: (index % columns) * width, y: Math.floor(index / columns) * height, w: width, h: height },
      fieldConfig: { defaults: { unit, min: 0 }, overrides: [] },
      targets: lines.map(({ query, legend: legendFormat }, at) => ({
        refId: String.fromCharCode(65 + at),
        datasource,
        expr: query(form, "$__rate_interval", 'job=~"$job"'),
        legendFormat,
      })),
    })),
  };
  return `${JSON.stringify(dashboard, undefined, 2)}\n`;
}
