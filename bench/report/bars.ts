import { formatNumber, formatSummary } from "../suite/format.ts";
import type { SummedFigure } from "../suite/results.ts";
import { footAxis, picture, width } from "./axis.ts";
import { colorsOf } from "./colors.ts";
import { type Markup, markup } from "./markup.ts";
import { scaleOf } from "./scale.ts";

const left = 260;
const right = width - 110;
const rowHeight = 26;
const top = 6;

/** A bar for each subject up to its median, with a whisker from the lowest round to the highest. */
export function bars(title: string, figures: readonly SummedFigure[]): Markup {
  const foot = top + figures.length * rowHeight;
  const scale = scaleOf(
    figures.flatMap(({ median, lowest, highest }) => [median, lowest, highest]),
    left,
    right,
  );
  const unit = figures[0]?.unit ?? "";
  const classes = colorsOf(figures.map(({ subject }) => subject));
  const rows = figures.map((figure, index) => {
    const { subject, median, lowest, highest, load, note } = figure;
    const middle = top + index * rowHeight + rowHeight / 2;
    const [from, to, end] = [lowest, highest, median].map((value) => scale.place(value).toFixed(1)) as [
      string,
      string,
      string,
    ];
    const about = `${subject}: ${formatSummary(figure)} ${unit}, load ${load.toFixed(1)}${note === undefined ? "" : `; ${note}`}`;
    return markup`<g><title>${about}</title>
<text class="name" x="${left - 8}" y="${middle + 4}" text-anchor="end">${subject}</text>
<rect class="${classes[index]} bar" x="${left}" y="${middle - 8}" width="${Math.max(1, Number(end) - left).toFixed(1)}" height="16"/>
<path class="whisker" d="M${from} ${middle}H${to}M${from} ${middle - 5}v10M${to} ${middle - 5}v10"/>
<text class="value" x="${right + 8}" y="${middle + 4}">${formatNumber(median)}</text></g>`;
  });
  return picture(title, foot + 42, [footAxis(scale, unit, top, foot, right), ...rows]);
}

/** One bar for each subject, made of its parts, one behind the other. */
export function stackedBars(title: string, figures: readonly SummedFigure[]): Markup {
  const subjects = [...new Set(figures.map(({ subject }) => subject))];
  const parts = [...new Set(figures.map(({ part }) => part ?? ""))];
  const foot = top + subjects.length * (rowHeight + 8);
  const of = (subject: string) => figures.filter((figure) => figure.subject === subject);
  const totals = subjects.map((subject) => of(subject).reduce((sum, { median }) => sum + median, 0));
  const greatest = Math.max(...totals) || 1;
  // Lengths are only sums on an axis from 0 on, so this one is never by magnitude.
  const scale = scaleOf([greatest], left, right);
  const unit = figures[0]?.unit ?? "";
  const rows = subjects.map((subject, index) => {
    const y = top + index * (rowHeight + 8) + 2;
    let sum = 0;
    const blocks = of(subject).map((figure) => {
      const from = scale.place(sum);
      sum += figure.median;
      const block = scale.place(sum) - from;
      return markup`<rect class="c${parts.indexOf(figure.part ?? "") % 12} bar" x="${from.toFixed(1)}" y="${y}" width="${block.toFixed(1)}" height="${rowHeight}"><title>${subject}, ${figure.part}: ${formatSummary(figure)} ${unit}, load ${figure.load.toFixed(1)}</title></rect>${
        block > 60
          ? markup`<text class="inside" x="${(from + 5).toFixed(1)}" y="${y + 17}">${fitted(figure.part ?? "", block)}</text>`
          : undefined
      }`;
    });
    return markup`<text class="name" x="${left - 8}" y="${y + 17}" text-anchor="end">${subject}</text>${blocks}<text class="value" x="${right + 8}" y="${y + 17}">${formatNumber(totals[index] ?? 0)}</text>`;
  });
  const legend = parts.map((part, index) => markup`<span class="c${index % 12}">${part}</span>`);
  return markup`${picture(title, foot + 42, [footAxis(scale, unit, top, foot, right), ...rows])}<p class="legend">${legend}</p>`;
}

/** As much of the text as a block has room for. */
function fitted(text: string, room: number): string {
  const most = Math.floor((room - 8) / 7);
  return text.length <= most ? text : `${text.slice(0, Math.max(1, most - 1))}…`;
}
