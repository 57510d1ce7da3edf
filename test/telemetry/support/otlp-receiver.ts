import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";

// A stand-in for a collector, which Debian does not have: it takes metrics over OTLP/HTTP in JSON, and shows the newest
// to Prometheus with the names that a collector gives them. So what it says about names is this project's reading of the
// specification "Prometheus and OpenMetrics Compatibility".

interface OtlpAttribute {
  readonly key: string;
  readonly value: {
    readonly stringValue?: string;
    readonly intValue?: number;
    readonly doubleValue?: number;
  };
}

interface OtlpPoint {
  readonly attributes: readonly OtlpAttribute[];
  readonly asDouble?: number;
  readonly asInt?: number | string;
}

interface OtlpHistogramPoint extends OtlpPoint {
  readonly count: number | string;
  readonly sum: number;
  readonly bucketCounts: readonly (number | string)[];
  readonly explicitBounds: readonly number[];
}

interface OtlpMetric {
  readonly name: string;
  readonly unit: string;
  readonly gauge?: { readonly dataPoints: readonly OtlpPoint[] };
  readonly sum?: {
    readonly dataPoints: readonly OtlpPoint[];
    readonly isMonotonic: boolean;
    readonly aggregationTemporality: number;
  };
  readonly histogram?: {
    readonly dataPoints: readonly OtlpHistogramPoint[];
    readonly aggregationTemporality: number;
  };
}

/** `AGGREGATION_TEMPORALITY_CUMULATIVE` of OTLP. */
const cumulative = 2;

export interface OtlpReceiver extends AsyncDisposable {
  /** Where it takes metrics. */
  readonly url: string;
  /** Host and port where it shows them, at `/metrics`. */
  readonly target: string;
}

export async function openOtlpReceiver(): Promise<OtlpReceiver> {
  let page = "";
  const server = createServer(async (request, response) => {
    try {
      if (request.method === "POST") {
        const parts: Buffer[] = [];
        for await (const part of request) parts.push(part as Buffer);
        page = pageOf(JSON.parse(Buffer.concat(parts).toString()));
        response.setHeader("content-type", "application/json").end("{}");
      } else response.setHeader("content-type", "text/plain; version=0.0.4").end(page);
    } catch (error) {
      response.writeHead(400).end(String(error));
    }
  });
  const target = await listening(server);
  return {
    url: `http://${target}/v1/metrics`,
    target,
    [Symbol.asyncDispose]: () => closed(server),
  };
}

/** Listens on the loopback, and gives host and port. */
export async function listening(server: Server): Promise<string> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

export function closed(server: Server): Promise<void> {
  server.closeAllConnections();
  return new Promise((resolve) => server.close(() => resolve()));
}

function pageOf(body: { resourceMetrics: { scopeMetrics: { metrics: OtlpMetric[] }[] }[] }): string {
  const metrics = body.resourceMetrics.flatMap(({ scopeMetrics }) =>
    scopeMetrics.flatMap((scope) => scope.metrics),
  );
  return metrics.flatMap(linesOf).join("\n").concat("\n");
}

function linesOf({ name, unit, gauge, sum, histogram }: OtlpMetric): string[] {
  const units: Readonly<Record<string, string>> = { s: "_seconds", By: "_bytes" };
  const base = name.replaceAll(/[^A-Za-z0-9_]/g, "_") + (units[unit] ?? "");
  if (gauge !== undefined)
    return gauge.dataPoints.map((point) => `${base}${labels(point)} ${numberIn(point)}`);
  if (sum !== undefined) {
    if (!sum.isMonotonic || sum.aggregationTemporality !== cumulative)
      throw new Error(`${name} is no cumulative counter`);
    return sum.dataPoints.map((point) => `${base}_total${labels(point)} ${numberIn(point)}`);
  }
  if (histogram?.aggregationTemporality !== cumulative) throw new Error(`${name} is no cumulative histogram`);
  return histogram.dataPoints.flatMap((point) => {
    let count = 0;
    const buckets = point.bucketCounts.map((added, index) => {
      count += Number(added);
      const bound = point.explicitBounds[index] ?? "+Inf";
      return `${base}_bucket${labels(point, [`le="${bound}"`])} ${count}`;
    });
    if (count !== Number(point.count))
      throw new Error(`${name} counts ${point.count}, and its buckets ${count}`);
    return [...buckets, `${base}_count${labels(point)} ${count}`, `${base}_sum${labels(point)} ${point.sum}`];
  });
}

function numberIn({ asDouble, asInt }: OtlpPoint): number {
  return asDouble ?? Number(asInt);
}

function labels({ attributes }: OtlpPoint, more: readonly string[] = []): string {
  const all = attributes.map(({ key, value }) => {
    const text = String(value.stringValue ?? value.intValue ?? value.doubleValue);
    return `${key.replaceAll(/\W/g, "_")}=${JSON.stringify(text)}`;
  });
  return `{${[...all, ...more].join(",")}}`;
}
