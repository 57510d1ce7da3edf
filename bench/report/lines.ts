import { shares } from "../suite/figure.ts";
import { formatPoint, formatSummary } from "../suite/format.ts";
import type { SummedFigure } from "../suite/results.ts";
import { footAxis, picture, sideAxis, width } from "./axis.ts";
import { colorsOf } from "./colors.ts";
import { type Markup, markup } from "./markup.ts";
import { type Scale, scaleOf } from "./scale.ts";

const left = 70;
const right = width - 20;
const top = 30;
const height = 380;
const foot = height - 42;

/**
 * How a quantity grows: a line for each subject through its medians, with a whisker at each point from the lowest round
 * to the highest.
 */
export function curves(title: string, figures: readonly SummedFigure[]): Markup {
  const subjects = [...new Set(figures.map(({ subject }) => subject))];
  const along = scaleOf(
    figures.map(({ at }) => at?.value ?? 0),
    left,
    right,
  );
  const up = scaleOf(
    figures.flatMap(({ median, lowest, highest }) => [median, lowest, highest]),
    foot,
    top,
  );
  const classes = colorsOf(subjects);
  const lines = subjects.map((subject, index) => {
    const points = figures
      .filter((figure) => figure.subject === subject)
      .sort((a, b) => (a.at?.value ?? 0) - (b.at?.value ?? 0));
    const marks = points.map((figure) => {
      const x = along.place(figure.at?.value ?? 0).toFixed(1);
      const [y, from, to] = [figure.median, figure.lowest, figure.highest].map((value) =>
        up.place(value).toFixed(1),
      ) as [string, string, string];
      return markup`<g><title>${subject}, ${figure.at && formatPoint(figure.at)}: ${formatSummary(figure)} ${figure.unit}, load ${figure.load.toFixed(1)}</title><path class="line" d="M${x} ${from}V${to}"/><circle cx="${x}" cy="${y}" r="3.5"/></g>`;
    });
    return markup`<g class="${classes[index]}"><path class="line" d="${pathOf(points.map((figure) => [along.place(figure.at?.value ?? 0), up.place(figure.median)]))}"/>${marks}</g>`;
  });
  const [first] = figures;
  return markup`${picture(title, height, [
    sideAxis(up, first?.unit ?? "", left, right, top),
    footAxis(along, first?.at?.axis ?? "", top, foot, right),
    ...lines,
  ])}${legend(subjects)}`;
}

/** Which share of the calls took no longer than so long: a line for each subject. */
export function distributions(title: string, figures: readonly SummedFigure[]): Markup {
  const along = scaleOf(
    figures.flatMap(({ quantiles = [] }) => quantiles),
    left,
    right,
  );
  const up: Scale = {
    isLogarithmic: false,
    ticks: [0, 20, 40, 60, 80, 100],
    place: (percent) => foot + (percent / 100) * (top - foot),
  };
  const classes = colorsOf(figures.map(({ subject }) => subject));
  const lines = figures.map(({ subject, quantiles = [] }, index) => {
    const points = quantiles.map(
      (value, at) => [along.place(value), up.place((shares[at] ?? 0) * 100)] as const,
    );
    return markup`<g class="${classes[index]}"><title>${subject}</title><path class="line" d="${pathOf(points)}"/></g>`;
  });
  return markup`${picture(title, height, [
    sideAxis(up, "% of the calls took no longer", left, right, top),
    footAxis(along, figures[0]?.unit ?? "", top, foot, right),
    ...lines,
  ])}${legend(figures.map(({ subject }) => subject))}`;
}

function pathOf(points: readonly (readonly [number, number])[]): string {
  return points.map(([x, y], index) => `${index === 0 ? "M" : "L"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
}

function legend(subjects: readonly string[]): Markup {
  const classes = colorsOf(subjects);
  return markup`<p class="legend">${subjects.map((subject, index) => markup`<span class="${classes[index]}">${subject}</span>`)}</p>`;
}
