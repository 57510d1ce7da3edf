import { describe, expect, it } from "vitest";
import { markup } from "../../bench/report/markup.ts";
import { report } from "../../bench/report/report.ts";
import { scaleOf } from "../../bench/report/scale.ts";
import { shares } from "../../bench/suite/figure.ts";
import { describeResults } from "../../bench/suite/terminal.ts";
import { figure, resultsWith } from "./support/samples.ts";

const hostile = `<script>alert("&'")</script>`;

/** A figure of every kind that a chart is drawn of. */
const results = resultsWith(
  [
    figure("shm.p50_us", [10, 12, 11], {
      subject: "Cinnabar shm",
      quantiles: shares.map((share) => 5 + share),
    }),
    figure("net.p50_us", [100, 900, 300], { subject: hostile, note: hostile }),
    ...[1, 2, 64].map((clients) =>
      figure(`curve.${clients}`, [clients], {
        subject: hostile,
        chart: "Growth",
        at: { axis: "clients", value: clients },
      }),
    ),
    ...["codec", hostile].map((part) =>
      figure(`part.${part}`, [3], { subject: "Cinnabar shm", chart: "Layers", part }),
    ),
    figure("nothing", [0, 0, 0], { chart: "All zero" }),
    figure("unknown", [], { chart: "No rounds" }),
  ],
  {
    settings: { command: hostile, quick: true, rounds: 3, roundMs: 10, machine: hostile },
    workloads: [{ name: "small", title: hostile, about: hostile, seconds: 1 }],
    lacks: [{ workload: "small", subject: hostile, why: hostile }],
    failures: [{ workload: hostile, error: hostile }],
  },
);
const page = report(results);

describe("the report", () => {
  it("escapes whatever is text", () => {
    expect(page).not.toContain("<script");
    expect(page).toContain("&#60;script&#62;alert(&#34;&#38;&#39;&#34;)&#60;/script&#62;");
    expect(markup`<a title="${'"'}">${markup`<b>${1}</b>`}${undefined}</a>`.text).toBe(
      '<a title="&#34;"><b>1</b></a>',
    );
  });

  it("asks for nothing from a network", () => {
    expect(page).not.toMatch(/https?:|src=|href=|@import|url\(/);
  });

  it("closes every element that it opens, in order", () => {
    const open: string[] = [];
    for (const [, slash, name = "", selfClosed] of page.matchAll(/<(\/?)([a-z][a-z0-9]*)[^>]*?(\/?)>/g)) {
      if (name === "meta" || selfClosed === "/") continue;
      if (slash === "/") expect(open.pop()).toBe(name);
      else open.push(name);
    }
    expect(open).toEqual([]);
  });

  it("draws no place that is no number", () => {
    expect(page).not.toMatch(/="[^"]*(NaN|Infinity|undefined)/);
  });

  it("has every kind of chart, each with its unit, and the numbers behind them", () => {
    expect(page.match(/<svg /g)).toHaveLength(6); // bars with a distribution, a curve, a stack, and two of hardly anything
    expect(page).toContain(">µs, logarithmic<");
    expect(page).toContain(">clients, logarithmic<");
    expect(page).toContain("% of the calls took no longer");
    for (const { name } of results.figures) expect(page).toContain(markup`<code>${name}</code>`.text);
  });

  it("is readable in light and dark", () => {
    expect(page).toContain("prefers-color-scheme:dark");
  });
});

describe("the scales of charts", () => {
  it("begin at 0 where values lie near one another", () => {
    const scale = scaleOf([8, 10], 0, 100);
    expect(scale.isLogarithmic).toBe(false);
    expect(scale.place(0)).toBe(0);
    expect(scale.ticks[0]).toBe(0);
    expect(scale.place(scale.ticks.at(-1) ?? 0)).toBe(100);
  });

  it("go by magnitude where they lie far apart", () => {
    const scale = scaleOf([2, 5000], 0, 100);
    expect(scale.ticks).toEqual([1, 10, 100, 1000, 10_000]);
    expect(scale.place(100)).toBeCloseTo(50);
    expect(scale.place(0)).toBe(0);
  });

  it("stand upside down as well", () => {
    expect(scaleOf([10], 300, 20).place(10)).toBe(20);
  });
});

describe("the table in the terminal", () => {
  it("has every figure, what was not measured, and the load", () => {
    const text = describeResults(results);
    expect(text).toContain("11.0 (10.0–12.0)");
    expect(text).toContain("2 clients");
    expect(text).toContain("== Not measured ==");
    expect(text).toContain("load average 0.50 before, 1.50 after");
  });
});
