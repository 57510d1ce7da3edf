import { formatNumber, formatSize } from "../suite/format.ts";
import { type Markup, markup } from "./markup.ts";
import type { Scale } from "./scale.ts";

/** How wide every chart is, in the units of its drawing; the page scales it. */
export const width = 900;

/** An axis at the foot, with lines up through the chart. */
export function footAxis(scale: Scale, label: string, top: number, foot: number, right: number): Markup {
  const ticks = scale.ticks.map((tick) => {
    const x = scale.place(tick).toFixed(1);
    return markup`<line class="grid" x1="${x}" x2="${x}" y1="${top}" y2="${foot}"/><text class="tick" x="${x}" y="${foot + 16}" text-anchor="middle">${tickText(tick, label)}</text>`;
  });
  return markup`${ticks}<text class="label" x="${right}" y="${foot + 34}" text-anchor="end">${withKind(label, scale)}</text>`;
}

/** An axis at the left, with lines through the chart. */
export function sideAxis(scale: Scale, label: string, left: number, right: number, top: number): Markup {
  const ticks = scale.ticks.map((tick) => {
    const y = scale.place(tick);
    return markup`<line class="grid" x1="${left}" x2="${right}" y1="${y.toFixed(1)}" y2="${y.toFixed(1)}"/><text class="tick" x="${left - 8}" y="${(y + 4).toFixed(1)}" text-anchor="end">${tickText(tick, label)}</text>`;
  });
  return markup`${ticks}<text class="label" x="${left - 8}" y="${top - 12}" text-anchor="start">${withKind(label, scale)}</text>`;
}

/** A chart as a picture that says by itself what it shows. */
export function picture(title: string, height: number, content: readonly Markup[]): Markup {
  return markup`<svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${title}">${content}</svg>`;
}

function withKind(label: string, { isLogarithmic }: Scale): string {
  return isLogarithmic ? `${label}, logarithmic` : label;
}

function tickText(tick: number, label: string): string {
  if (label === "bytes" && tick >= 1024 && tick % 1024 === 0) return formatSize(tick);
  if (tick === 0) return "0";
  if (tick >= 1e6) return `${tick / 1e6} M`;
  return tick >= 1 ? tick.toLocaleString("en-US") : formatNumber(tick);
}
