import type { ShownRun } from "../suite/history.ts";
import { type Markup, markup } from "./markup.ts";

type Key = "shm" | "net-unix" | "grpc-unix" | "tcp" | "net-tcp" | "grpc-tcp";

interface Group {
  readonly title: string;
  readonly rows: readonly { readonly key: Key; readonly subject: string }[];
}

const groups: readonly Group[] = [
  {
    title: "On one host",
    rows: [
      { key: "shm", subject: "Cinnabar, shm" },
      { key: "net-unix", subject: "node:net, Unix socket" },
      { key: "grpc-unix", subject: "grpc-js, Unix socket" },
    ],
  },
  {
    title: "Over TCP",
    rows: [
      { key: "tcp", subject: "Cinnabar, tcp" },
      { key: "net-tcp", subject: "node:net, TCP" },
      { key: "grpc-tcp", subject: "grpc-js, TCP" },
    ],
  },
];

interface Column {
  readonly title: string;
  readonly about: string;
  readonly unit: string;
  readonly figure: (key: Key) => string;
}

const isOurs = (key: Key) => key === "shm" || key === "tcp";

const columns = [
  {
    title: "Latency in µs",
    about: "1 call in flight; less is better",
    unit: "µs",
    figure: (key) => `${key}.small.1.p50_us`,
  },
  {
    title: "Calls per second",
    about: "64 calls in flight; more is better",
    unit: "calls/s",
    figure: (key) => `${key}.small.64.ops`,
  },
  {
    title: "Bulk in GB/s",
    about: "16 MiB per transfer; more is better",
    unit: "GB/s",
    figure: (key) => `${key}.bulk.16MiB.${isOurs(key) ? "get_gbps" : "gbps"}`,
  },
] as const satisfies readonly Column[];

export type Theme = "light" | "dark";

const themes = {
  light: {
    page: "#ffffff",
    text: "#1f2328",
    faint: "#59636e",
    line: "#d1d9e0",
    ours: "#c8342b",
    theirs: "#a9b4c0",
  },
  dark: {
    page: "#0d1117",
    text: "#f0f6fc",
    faint: "#9198a1",
    line: "#3d444d",
    ours: "#f0645a",
    theirs: "#57636f",
  },
} as const;

const font = "system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif";
const width = 900;
const namesWidth = 184;
const columnWidth = (width - namesWidth - 12) / columns.length;
/** What a column keeps free at the right of its longest bar for the number. */
const numberWidth = 76;
const headHeight = 66;
const groupHeight = 28;
const rowHeight = 26;
const barHeight = 14;
const footHeight = 62;

/**
 * The README's picture of a run: latency, rate and bulk of each contender, as bars from 0 with whiskers from the lowest
 * round to the highest. The same results give the same text.
 *
 * @throws Error when the results lack one of its figures
 */
export function picture(results: ShownRun, theme: Theme): string {
  const { page, text, faint, line, ours, theirs } = themes[theme];
  const rowCount = groups.reduce((sum, { rows }) => sum + rows.length, 0);
  const foot = headHeight + groups.length * groupHeight + rowCount * rowHeight;
  const height = foot + footHeight;
  const parts: Markup[] = [];

  columns.forEach(({ title, about }, index) => {
    const x = namesWidth + index * columnWidth;
    parts.push(
      markup`<text class="title" x="${x}" y="30">${title}</text><text class="faint" x="${x}" y="49">${about}</text>`,
      markup`<line x1="${x}" x2="${x}" y1="${headHeight}" y2="${foot}"/>`,
    );
  });
  let y = headHeight;
  for (const { title, rows } of groups) {
    parts.push(markup`<text class="title" x="16" y="${y + 19}">${title}</text>`);
    y += groupHeight;
    for (const { key, subject } of rows) {
      const middle = y + rowHeight / 2;
      parts.push(
        markup`<text class="${isOurs(key) ? "strong" : "name"}" x="16" y="${middle + 4.5}">${subject}</text>`,
        ...columns.map((column, index) => bar(results, column, index, key, middle)),
      );
      y += rowHeight;
    }
  }
  const [first, second] = footnote(results);
  parts.push(
    markup`<text class="faint" x="16" y="${foot + 29}">${first}</text>`,
    markup`<text class="faint" x="16" y="${foot + 46}">${second}</text>`,
  );

  return `${
    markup`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-labelledby="title">
<title id="title">Latency, calls per second and bulk throughput of Cinnabar, node:net and grpc-js</title>
<style>text{font:13px ${font};fill:${text}}.title{font-weight:600;font-size:14px}.strong{font-weight:600}.faint{fill:${faint};font-size:12px}.ours{fill:${ours}}.theirs{fill:${theirs}}line{stroke:${line}}path{stroke:${text};stroke-width:1.2;fill:none}</style>
<rect width="${width}" height="${height}" rx="6" fill="${page}"/>
${parts}
</svg>`.text
  }\n`;
}

/** The bar of one contender in one column: up to the median, with its whisker and its number. */
function bar(results: ShownRun, column: Column, index: number, key: Key, middle: number): Markup {
  const figure = figureOf(results, column.figure(key));
  const left = namesWidth + index * columnWidth;
  const greatest = Math.max(
    ...groups.flatMap(({ rows }) => rows.map((row) => figureOf(results, column.figure(row.key)).highest)),
  );
  const place = (value: number) => left + (value / greatest) * (columnWidth - numberWidth);
  const [median, lowest, highest] = [figure.median, figure.lowest, figure.highest].map((value) =>
    place(value).toFixed(1),
  );
  const x = (place(figure.highest) + 7).toFixed(1);
  return markup`<g><title>${column.unit}: median ${round(figure.median)}, lowest ${round(figure.lowest)}, highest ${round(figure.highest)}</title>
<rect class="${isOurs(key) ? "ours" : "theirs"}" x="${left}" y="${middle - barHeight / 2}" width="${Math.max(1.5, Number(median) - left).toFixed(1)}" height="${barHeight}"/>
<path d="M${lowest} ${middle}H${highest}M${lowest} ${middle - 4}v8M${highest} ${middle - 4}v8"/>
<text class="${isOurs(key) ? "strong" : "name"}" x="${x}" y="${middle + 4.5}">${round(figure.median)}</text></g>`;
}

/** The figures that picture and tables show. */
export const shownFigures: readonly string[] = groups.flatMap(({ rows }) =>
  rows.flatMap(({ key }) => [
    ...columns.map(({ figure }) => figure(key)),
    ...(isOurs(key) ? [`${key}.bulk.16MiB.put_gbps`] : []),
  ]),
);

/** The three numbers of README.md: a table of Markdown, and the machine. */
export function readmeTable(results: ShownRun): string {
  const cell = (name: string) => round(figureOf(results, name).median);
  const rows = [
    ["A small call on one host: median latency", "µs", ["shm", "net-unix", "grpc-unix"], columns[0]],
    ["The same, 64 calls in flight", "calls a second", ["shm", "net-unix", "grpc-unix"], columns[1]],
    ["Buffers of 16 MiB over TCP", "GB a second", ["tcp", "net-tcp", "grpc-tcp"], columns[2]],
  ] as const;
  return [
    "| | Cinnabar | `node:net` | grpc-js |",
    "|---|---|---|---|",
    ...rows.map(
      ([what, unit, keys, { figure }]) =>
        `| ${what}, ${unit} | ${keys.map((key, index) => (index === 0 ? `**${cell(figure(key))}**` : cell(figure(key)))).join(" | ")} |`,
    ),
    "",
    `Medians. ${footnote(results)[1]}`,
  ].join("\n");
}

/** The same figures as a table of Markdown, with the machine they were measured on. */
export function pictureTable(results: ShownRun): string {
  const cell = (name: string) => {
    const { median, lowest, highest } = figureOf(results, name);
    return `${round(median)} (${round(lowest)} to ${round(highest)})`;
  };
  const rows = groups
    .flatMap(({ rows }) => rows)
    .map(({ key, subject }) => {
      const bulk = isOurs(key)
        ? [cell(`${key}.bulk.16MiB.get_gbps`), cell(`${key}.bulk.16MiB.put_gbps`)]
        : [cell(`${key}.bulk.16MiB.gbps`), ""];
      const cells = [subject, cell(`${key}.small.1.p50_us`), cell(`${key}.small.64.ops`), ...bulk];
      return `| ${cells.join(" | ")} |`;
    });
  return [
    "| median (lowest to highest round) | latency, µs | calls/s, 64 in flight | 16 MiB get or stream, GB/s | 16 MiB put, GB/s |",
    "|---|---|---|---|---|",
    ...rows,
    "",
    footnote(results)[1],
  ].join("\n");
}

function footnote({ settings, machine, load, startedAt }: ShownRun): [string, string] {
  const name = settings.machine ?? `${machine.cores} cores of ${machine.cpu}`;
  return [
    `Bars start at 0 and end at the median of ${settings.rounds} rounds. Whiskers show the lowest and the highest round.`,
    `Machine: ${name}, Node ${machine.node.replace("v", "")}, load average ${load.after.toFixed(1)}, ${startedAt.slice(0, 10)}.`,
  ];
}

function figureOf({ figures }: ShownRun, name: string) {
  const figure = figures.find((one) => one.name === name);
  if (figure === undefined) throw new Error(`The results lack the figure ${name}`);
  return figure;
}

/** Three digits that count: 8.48, 741, 341,000. */
function round(value: number): string {
  return Number(value.toPrecision(3)).toLocaleString("en-US");
}
