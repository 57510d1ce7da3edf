import { attribute, own } from "../conventions.ts";
import { durations, type Metric, metrics } from "../metrics/metric.ts";
import { labelOf, type NameForm, nameOf } from "./names.ts";

/** An expression of PromQL over the last `range`, such as `5m`. `filter` has matchers of labels, such as `job="a"`. */
export type Query = (form: NameForm, range: string, filter?: string) => string;

const method = labelOf(attribute.method);

/** `metric{filter,own}` */
function select(name: string, filter = "", matchers = ""): string {
  const all = [filter, matchers].filter((part) => part !== "").join(",");
  return all === "" ? name : `${name}{${all}}`;
}

/** The rate of a counter, summed by labels. */
function rate(metric: Metric, by: readonly string[] = [], matchers = ""): Query {
  return (form, range, filter) =>
    `sum by (${["job", ...by].join(", ")}) (rate(${select(nameOf(metric, form), filter, matchers)}[${range}]))`;
}

/** The value of a gauge, over all processes of a job. */
function level(metric: Metric, by: readonly string[] = [], matchers = "", how: "sum" | "min" = "sum"): Query {
  return (form, _range, filter) =>
    `${how} by (${["job", ...by].join(", ")}) (${select(nameOf(metric, form), filter, matchers)})`;
}

function calls(side: "in" | "out", matchers = ""): Query {
  return (form, range, filter) => {
    const name = `${nameOf(durations[side], form)}_count`;
    return `sum by (job, ${method}) (rate(${select(name, filter, matchers)}[${range}]))`;
  };
}

function quantile(side: "in" | "out", share: number): Query {
  return (form, range, filter) => {
    const buckets = select(`${nameOf(durations[side], form)}_bucket`, filter);
    return `histogram_quantile(${share}, sum by (job, ${method}, le) (rate(${buckets}[${range}])))`;
  };
}

/** Each method has a value, also without failures. */
function failedShare(side: "in" | "out"): Query {
  const failed = calls(side, `${labelOf(attribute.errorType)}!=""`);
  const all = calls(side);
  return (...of) => `(${failed(...of)} or 0 * ${all(...of)}) / ${all(...of)}`;
}

/** Every expression that rules and dashboards have. */
export const queries = {
  served: calls("in"),
  called: calls("out"),
  failedShareServed: failedShare("in"),
  failedShareCalled: failedShare("out"),
  p50Served: quantile("in", 0.5),
  p99Served: quantile("in", 0.99),
  p99Called: quantile("out", 0.99),
  inFlight: level(metrics.inFlight, [labelOf(own.direction)]),
  waiting: level(metrics.waiting),
  waitingSize: level(metrics.waitingSize),
  running: level(metrics.admissionRunning),
  queued: level(metrics.admissionQueued),
  rejections: rate(metrics.admissionRejections, [labelOf(own.cause)]),
  retries: rate(metrics.retries),
  retriesWithheld: rate(metrics.retriesWithheld),
  replays: rate(metrics.replays),
  hanging: (form, range, filter) =>
    `sum by (job) (increase(${select(nameOf(metrics.handlersOverdue, form), filter)}[${range}])) - ` +
    `sum by (job) (increase(${select(nameOf(metrics.handlersLate, form), filter)}[${range}]))`,
  transferred: rate(metrics.transferIo, [labelOf(own.operation)]),
  memory: level(metrics.memory, [labelOf(own.kind)]),
  quarantined: level(metrics.memory, [], `${labelOf(own.kind)}="quarantined"`),
  sessions: level(metrics.sessions),
  sessionEnds: rate(metrics.sessionEnds, [labelOf(own.reason)]),
  refused: rate(metrics.messagesRefused, [labelOf(own.cause)]),
  malformed: rate(metrics.messagesRefused, [], `${labelOf(own.cause)}="malformed"`),
  stalls: rate(metrics.stalls, ["instance"]),
  stallTime: rate(metrics.stallTime, ["instance"]),
  serving: level(metrics.healthServing, [labelOf(own.service)], "", "min"),
  backends: level(metrics.backendState, [labelOf(attribute.serverAddress), labelOf(own.state)], "", "min"),
  connected: level(
    metrics.backendState,
    [labelOf(attribute.serverAddress)],
    `${labelOf(own.state)}="connected"`,
    "min",
  ),
  scraped: (form, _range, filter) => `count(${select(nameOf(metrics.sessions, form), filter)}) or vector(0)`,
} as const satisfies Readonly<Record<string, Query>>;
